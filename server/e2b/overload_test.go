package e2b

import (
	"context"
	"encoding/base64"
	"net/http"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"rota/api/gen/e2b/filesystem"
	"rota/api/gen/e2b/filesystem/filesystemconnect"
	rotav1 "rota/api/gen/rota/v1"
)

// A call that finds no room at a server or an agent is made again, in the middle of an upload too, and
// whatever it does. What has no delay, or another reason, is not.
func TestOverloadIsWaitedFor(t *testing.T) {
	c, server, _ := world(t)
	var refusals int
	err := refusal(connect.CodeResourceExhausted, "OVERLOADED", time.Millisecond)
	c.before = func(_ context.Context, method string, req any) error {
		r, isWrite := req.(*rotav1.WriteFileRequest)
		if refusals > 0 && (method == "MoveFile" || isWrite && r.Offset > 0) {
			refusals--
			return err
		}
		return nil
	}
	refusals = 3
	content := strings.Repeat("x", 3<<20)
	status, body, _ := call(t, "POST", server.URL+"/files?path=x", strings.NewReader(content), sandboxHeader, "t7", "Content-Type", "application/octet-stream")
	if status != http.StatusOK || refusals != 0 || c.files["x"] != content {
		t.Errorf("the upload: %d %s; %d refusals are left, the file has %d bytes", status, body, refusals, len(c.files["x"]))
	}
	refusals = 3
	files := filesystemconnect.NewFilesystemClient(http.DefaultClient, server.URL)
	_, moved := files.Move(in(t, "t7"), &filesystem.MoveRequest{Source: "/home/user/x", Destination: "/home/user/y"})
	if refusals != 0 {
		t.Errorf("a move was not made again: %v", moved)
	}
	for reason, err := range map[string]error{
		"no delay":     refusal(connect.CodeResourceExhausted, "OVERLOADED", 0),
		"a long delay": refusal(connect.CodeResourceExhausted, "OVERLOADED", time.Minute),
		"no overload":  refusal(connect.CodeResourceExhausted, "NO_SPACE", time.Millisecond),
	} {
		if persist().again(t.Context(), err) {
			t.Errorf("%s: it is made again", reason)
		}
	}
}

// The largest message that the documentation names is not refused as one too many by an idle server.
func TestTheLargestMessageIsAccepted(t *testing.T) {
	_, server, _ := world(t)
	message := func(bytes int) string {
		return `{"process":{"pid":99},"input":{"stdin":"` + base64.StdEncoding.EncodeToString(make([]byte, bytes)) + `"}}`
	}
	send := func(bytes int) string {
		_, body, _ := call(t, "POST", server.URL+"/process.Process/SendInput", strings.NewReader(message(bytes)), sandboxHeader, "t7", "Content-Type", "application/json")
		return body
	}
	largest := messageBytesMax*3/4 - 100
	if got := send(largest); strings.Contains(got, "resource_exhausted") {
		t.Errorf("a message of %d bytes is answered %s", len(message(largest)), got)
	}
	if got := send(messageBytesMax); !strings.Contains(got, "limit") {
		t.Errorf("a larger one is answered %s", got)
	}
}
