package e2b

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"connectrpc.com/connect"

	"rota/api/codec"
)

// sentence is what an error tells people.
func sentence(err error) string {
	var e *connect.Error
	if errors.As(err, &e) {
		return e.Message()
	}
	return err.Error()
}

// isEnded: the sandbox is not there any more.
func isEnded(err error) bool {
	switch codec.Detail(err).GetReason() {
	case "TRAJECTORY_ENDED", "TRAJECTORY_NOT_FOUND":
		return true
	}
	return errors.Is(err, errEnded)
}

// isHidden: there is no such trajectory, or the caller may not know of it. Both look the same to
// callers, so that nobody learns which sandboxes of other namespaces there are.
func isHidden(err error) bool {
	code := connect.CodeOf(err)
	return err != nil && (code == connect.CodeNotFound || code == connect.CodePermissionDenied)
}

// notFound is the answer for a sandbox that is hidden.
func notFound(sandbox string) error {
	return connect.NewError(connect.CodeNotFound, fmt.Errorf("there is no sandbox %.40q, or the key has no right to read trajectories of its namespace", sandbox))
}

// statusOf is the HTTP status of an error of the API.
func statusOf(err error) int {
	if isEnded(err) {
		return http.StatusNotFound
	}
	if codec.Detail(err).GetReason() == "NO_SPACE" {
		return http.StatusInsufficientStorage
	}
	switch connect.CodeOf(err) {
	case connect.CodeInvalidArgument, connect.CodeFailedPrecondition, connect.CodeOutOfRange:
		return http.StatusBadRequest
	case connect.CodeUnauthenticated:
		return http.StatusUnauthorized
	case connect.CodePermissionDenied:
		return http.StatusForbidden
	case connect.CodeNotFound:
		return http.StatusNotFound
	case connect.CodeAlreadyExists:
		return http.StatusConflict
	case connect.CodeDeadlineExceeded:
		return http.StatusRequestTimeout
	case connect.CodeResourceExhausted:
		return http.StatusTooManyRequests
	case connect.CodeUnimplemented:
		return http.StatusNotImplemented
	case connect.CodeUnavailable:
		return http.StatusServiceUnavailable
	}
	return http.StatusInternalServerError
}

// problem is the body of an error.
type problem struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
}

// fail answers with an error.
func fail(w http.ResponseWriter, status int, message string) {
	answer(w, status, problem{status, message})
}

// failWith answers with an error of the API. Where trying again helps, it says when.
func failWith(w http.ResponseWriter, err error) {
	status := statusOf(err)
	if d := codec.Detail(err).GetRetryDelay(); d != nil && (status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable) {
		w.Header().Set("Retry-After", strconv.FormatInt(int64(d.AsDuration().Seconds())+1, 10))
	}
	fail(w, status, sentence(err))
}

// failFile answers a request for the content of a file with an error. For the SDKs of E2B, status
// 502 means that the sandbox is gone, and 404 that the file is.
func failFile(w http.ResponseWriter, err error) {
	if isEnded(err) {
		fail(w, http.StatusBadGateway, sentence(err))
		return
	}
	failWith(w, err)
}

// answer writes JSON. Nothing can be done about a reader that is gone.
func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}

// writeError answers a request for a sandbox in the form that its caller reads: that of Connect
// for the services, JSON for files.
func writeError(w http.ResponseWriter, r *http.Request, err error) {
	if strings.Count(r.URL.Path, "/") == 2 {
		_ = connect.NewErrorWriter().Write(w, r, translate(err))
		return
	}
	failWith(w, err)
}

// translate makes an error of the API one that the SDKs of E2B understand. For them, UNAVAILABLE
// means that the sandbox is gone.
func translate(err error) error {
	switch {
	case err == nil:
		return nil
	case isEnded(err):
		return connect.NewError(connect.CodeUnavailable, errors.New(sentence(err)))
	case errors.Is(err, context.DeadlineExceeded):
		return connect.NewError(connect.CodeDeadlineExceeded, errors.New("the time of the call is over"))
	case connect.CodeOf(err) == connect.CodeUnavailable:
		return connect.NewError(connect.CodeAborted, errors.New(sentence(err)))
	}
	code := connect.CodeOf(err)
	switch codec.Detail(err).GetReason() {
	case "NOT_A_DIRECTORY", "IS_DIRECTORY", "NOT_REGULAR":
		code = connect.CodeInvalidArgument // the path names the wrong kind of file
	}
	return connect.NewError(code, errors.New(sentence(err)))
}

// errorInterceptor translates the errors of the services.
type errorInterceptor struct{}

// WrapUnary is around unary calls.
func (errorInterceptor) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		resp, err := next(ctx, req)
		return resp, translate(err)
	}
}

// WrapStreamingClient is for clients.
func (errorInterceptor) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

// WrapStreamingHandler is around streams.
func (errorInterceptor) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) error { return translate(next(ctx, conn)) }
}

var (
	errEnded      = errors.New("the sandbox has ended")
	errTerminal   = errors.New("the process has a terminal: send Ctrl-D, which is the byte 4, instead of closing its input")
	errNoTerminal = errors.New("the process has no terminal: send the input to stdin")
)
