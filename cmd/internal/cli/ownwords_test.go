package cli

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"net/url"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"connectrpc.com/connect"

	rotav1 "rota/api/gen/rota/v1"
)

func TestErrorsNameCommands(t *testing.T) {
	for _, tt := range []struct{ reason, message, want string }{
		{"NODE_NOT_FOUND", `there is no node "x": ListNodes has their names`, `there is no node "x": "rota node list" has their names`},
		{"UNSATISFIABLE", `action 0: no node of pool "default" has GPUs`, `no node of pool "default" has GPUs`},
		{"UNKNOWN_OUTCOME", "the leader changed: repeat it with the same request_id", "the leader changed before the outcome was known: look before you repeat the command"},
	} {
		err := connect.NewError(connect.CodeNotFound, errors.New("x"))
		detail, detailErr := connect.NewErrorDetail(&rotav1.ErrorDetail{Reason: tt.reason, Message: tt.message})
		if detailErr != nil {
			t.Fatal(detailErr)
		}
		err.AddDetail(detail)
		if got := describe(err, "a:1"); got != tt.want {
			t.Errorf("describe = %q, want %q", got, tt.want)
		}
	}
}

// Every method that an error of a server names has a command, and every command exists.
func TestMethodsOfErrorsHaveCommands(t *testing.T) {
	a := &app{out: io.Discard, err: io.Discard}
	for method, command := range commandOf {
		words := strings.Fields(command)[1:]
		if cmd, rest, err := a.root().Find(words); err != nil || len(rest) > 0 || cmd.HasSubCommands() {
			t.Errorf("%s: there is no command %q", method, command)
		}
	}
	files, err := filepath.Glob(filepath.Join("..", "..", "..", "server", "rpc", "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	named := 0
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			text, ok := n.(*ast.BasicLit)
			if !ok || text.Kind != token.STRING || !strings.Contains(text.Value, " ") {
				return true
			}
			for _, method := range methodRE.FindAllString(text.Value, -1) {
				named++
				if commandOf[method] == "" {
					t.Errorf("%s names %s, for which commandOf has no command", text.Value, method)
				}
			}
			return true
		})
	}
	if named < 20 {
		t.Errorf("only %d names of methods found", named)
	}
}

// A stream breaks without an answer: connect makes these errors of it.
func TestBrokenStreamsAreLostConnections(t *testing.T) {
	for code, cause := range map[connect.Code]error{
		connect.CodeInternal: fmt.Errorf("protocol error: %w", io.ErrUnexpectedEOF),
		connect.CodeUnknown:  errors.New("http2: client connection lost"),
		connect.CodeCanceled: fmt.Errorf("read: %w", syscall.ECONNRESET),
	} {
		err := fmt.Errorf("watch actions: %w", connect.NewError(code, cause))
		if got := describe(err, "a:1"); !strings.HasPrefix(got, "lost the servers at a:1: ") || exitCode(err) != exitUnavailable {
			t.Errorf("%v: describe = %q with exit code %d", code, got, exitCode(err))
		}
	}
}

// An error of the connection names no URL of the API, and is worth another try.
func TestLostConnectionsAreToldWithoutTheURL(t *testing.T) {
	lost := &url.Error{Op: "Post", URL: "http://a:1/rota.v1.NodeService/ListNodes", Err: fmt.Errorf("write: %w", syscall.EPIPE)}
	for _, code := range []connect.Code{connect.CodeUnknown, connect.CodeUnavailable} {
		err := fmt.Errorf("list nodes: %w", connect.NewError(code, lost))
		if got, want := describe(err, "a:1"), "lost the servers at a:1: write: broken pipe"; got != want || exitCode(err) != exitUnavailable {
			t.Errorf("describe = %q with exit code %d, want %q", got, exitCode(err), want)
		}
	}
}
