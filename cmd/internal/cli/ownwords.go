package cli

import (
	"context"
	"errors"
	"net/url"
	"regexp"
	"strings"

	"connectrpc.com/connect"

	"rota/api/client"
)

// Errors of servers speak to all clients, so they name methods of the API. A user of the
// command line knows commands: commandOf has the one that does what a method does.
var commandOf = map[string]string{
	"CreateNamespace":    "rota operator namespace create",
	"GetAction":          "rota action get",
	"ListAccessPolicies": "rota acl policy list",
	"ListAuthMethods":    "rota acl auth-method list",
	"ListClasses":        "rota class list",
	"ListEngines":        "rota engine list",
	"ListGossipKeys":     "rota operator keyring list",
	"ListJobs":           "rota job list",
	"ListNodeGroups":     "rota node-group list",
	"ListNodes":          "rota node list",
	"ListPeers":          "rota operator raft list-peers",
	"ListPolicies":       "rota policy list",
	"ListPools":          "rota operator pool list",
	"ListQuotas":         "rota quota list",
	"ListResidency":      "rota residency list",
	"ListRewards":        "rota reward list",
	"ListSnapshots":      "rota snapshot list",
	"ListWorkerPools":    "rota worker pool list",
	"ListWorkers":        "rota worker list",
}

var methodRE = regexp.MustCompile(`\b(?:Create|Get|List)[A-Z][A-Za-z]+\b`)

// ownWords says a message of a server in words of the command line. A command submits one
// action, or several that are alike, so the position of an action says nothing. Request IDs
// are made by the client library: the user cannot repeat one.
func ownWords(reason, message string) string {
	switch reason {
	case "UNKNOWN_OUTCOME":
		return "the leader changed before the outcome was known: look before you repeat the command"
	case "TIMEOUT":
		return "the time of the call was over before it had an outcome: look before you repeat the command"
	}
	return methodRE.ReplaceAllStringFunc(strings.TrimPrefix(message, "action 0: "), func(method string) string {
		if command := commandOf[method]; command != "" {
			return `"` + command + `"`
		}
		return method
	})
}

// connectionText says what happened to a connection, without the URL of the method.
func connectionText(ce *connect.Error) string {
	var request *url.Error
	if errors.As(ce, &request) {
		return request.Err.Error()
	}
	return ce.Message()
}

// lostConnection reports whether an error is of the connection and not of a server: no
// answer came or a stream broke, and neither a deadline nor the user ended the call.
func lostConnection(err error) bool {
	var ce *connect.Error
	if !errors.As(err, &ce) || connect.IsWireError(err) || client.Detail(err) != nil {
		return false
	}
	switch ce.Code() {
	case connect.CodeUnavailable:
		return true
	case connect.CodeUnknown, connect.CodeInternal, connect.CodeCanceled: // what connect makes of a stream that breaks
		return !errors.Is(err, context.Canceled)
	}
	return false
}
