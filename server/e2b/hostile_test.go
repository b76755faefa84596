package e2b

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"net/textproto"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	"rota/api/gen/e2b/filesystem"
	"rota/api/gen/e2b/filesystem/filesystemconnect"
	"rota/api/gen/e2b/process"
	"rota/api/gen/e2b/process/processconnect"
	rotav1 "rota/api/gen/rota/v1"
	"rota/api/httpx"
)

// refusal is an error as rota's API has them.
func refusal(code connect.Code, reason string, retry time.Duration) error {
	err := connect.NewError(code, errors.New("refused: "+reason))
	detail := &rotav1.ErrorDetail{Code: uint32(code), Reason: reason, Message: reason}
	if retry > 0 {
		detail.RetryDelay = durationpb.New(retry)
	}
	if d, e := connect.NewErrorDetail(detail); e == nil {
		err.AddDetail(d)
	}
	return err
}

// in names a sandbox for a call of a service.
func in(t *testing.T, sandbox string) context.Context {
	ctx, info := connect.NewClientContext(t.Context())
	info.RequestHeader().Set(sandboxHeader, sandbox)
	return ctx
}

// eventually waits for something that follows from what was done.
func eventually(t *testing.T, what string, met func() bool) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); !met(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}

// TestOtherNamespaces: a sandbox of another namespace looks like one that does not exist.
func TestOtherNamespaces(t *testing.T) {
	c, server, _ := world(t)
	c.before = func(_ context.Context, method string, req any) error {
		if r, ok := req.(*rotav1.GetTrajectoryRequest); ok && r.Id == 4 {
			return connect.NewError(connect.CodePermissionDenied, errors.New("the token may not read trajectory in namespace secret"))
		}
		if r, ok := req.(*rotav1.GetTrajectoryRequest); ok && r.Id == 3 {
			return refusal(connect.CodeNotFound, "NOT_FOUND", 0)
		}
		return nil
	}
	answers := func(id string) (all []string) {
		for _, x := range [][]string{
			{"GET", "/sandboxes/" + id, ""}, {"DELETE", "/sandboxes/" + id, ""}, {"POST", "/sandboxes/" + id + "/connect", `{"timeout":60}`},
			{"POST", "/sandboxes/" + id + "/timeout", `{"timeout":60}`}, {"POST", "/v2/sandboxes/" + id + "/refreshes", `{}`},
			{"GET", "/health", "", id}, {"GET", "/files?path=x", "", id}, {"POST", "/files?path=x", "x", id},
			{"POST", "/process.Process/List", "{}", id}, {"POST", "/filesystem.Filesystem/Stat", `{"path":"x"}`, id},
		} {
			headers := []string{"Content-Type", "application/json"}
			if len(x) > 3 {
				headers = append(headers, sandboxHeader, id)
			}
			status, body, _ := call(t, x[0], server.URL+x[1], strings.NewReader(x[2]), headers...)
			if status < 400 || strings.Contains(body, "secret") {
				t.Errorf("%v: %d %s", x, status, body)
			}
			all = append(all, fmt.Sprint(status, " ", strings.ReplaceAll(body, id, "ID")))
		}
		return all
	}
	hidden, missing := answers("t4"), answers("t3")
	for i := range hidden {
		if hidden[i] != missing[i] {
			t.Errorf("hidden:  %s\nmissing: %s", hidden[i], missing[i])
		}
	}
}

// TestStrangers: of a caller without an identity, no body is read.
func TestStrangers(t *testing.T) {
	c, _, e := world(t)
	c.before = func(_ context.Context, method string, _ any) error {
		return refusal(connect.CodeUnauthenticated, "NO_IDENTITY", 0)
	}
	body := &counted{}
	r := httptest.NewRequest("POST", "/sandboxes", body)
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	if e.ServeHTTP(w, r); w.Code != 401 || body.reads > 0 {
		t.Errorf("%d %s, %d reads", w.Code, w.Body, body.reads)
	}
}

type counted struct{ reads int }

func (c *counted) Read(p []byte) (int, error) {
	c.reads++
	return copy(p, `{"templateID":`), nil
}

// TestCreateOnce: while the leader changes, a sandbox is opened again with the same request ID.
func TestCreateOnce(t *testing.T) {
	c, server, _ := world(t)
	var ids []string
	c.before = func(_ context.Context, method string, req any) error {
		r, ok := req.(*rotav1.OpenTrajectoryRequest)
		if !ok {
			return nil
		}
		if ids = append(ids, r.RequestId); len(ids) < 3 {
			return refusal(connect.CodeUnavailable, "UNKNOWN_OUTCOME", time.Millisecond)
		}
		return nil
	}
	status, body, _ := call(t, "POST", server.URL+"/sandboxes", strings.NewReader(`{"templateID":"base"}`), "Content-Type", "application/json")
	if status != 201 || len(ids) != 3 || ids[0] == "" || ids[0] != ids[1] || ids[1] != ids[2] {
		t.Errorf("%d %s with %q", status, body, ids)
	}
}

// TestCreateEnded: a sandbox that ended before it had a node is none.
func TestCreateEnded(t *testing.T) {
	c, server, _ := world(t)
	c.state = rotav1.TrajectoryState_TRAJECTORY_STATE_CLOSED
	status, body, _ := call(t, "POST", server.URL+"/sandboxes", strings.NewReader(`{"templateID":"base"}`), "Content-Type", "application/json")
	if status != 503 || !strings.Contains(body, "ended before it had a node") {
		t.Errorf("%d %s", status, body)
	}
}

// TestCreateAndLeave: a sandbox whose caller leaves while it is opened is closed.
func TestCreateAndLeave(t *testing.T) {
	c, _, e := world(t)
	ctx, leave := context.WithCancel(t.Context())
	closed := make(chan uint64, 1)
	c.before = func(_ context.Context, method string, req any) error {
		switch r := req.(type) {
		case *rotav1.OpenTrajectoryRequest:
			leave()
		case *rotav1.CloseTrajectoryRequest:
			closed <- r.Id
		}
		return nil
	}
	r := httptest.NewRequest("POST", "/sandboxes", strings.NewReader(`{"templateID":"base"}`)).WithContext(ctx)
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	e.ServeHTTP(w, r)
	select {
	case id := <-closed:
		if id != 7 {
			t.Errorf("%d is closed", id)
		}
	default:
		t.Errorf("it is not closed: %d %s", w.Code, w.Body)
	}
}

// TestCreateUnseen: a sandbox that its caller may not read is closed.
func TestCreateUnseen(t *testing.T) {
	c, server, _ := world(t)
	c.state = rotav1.TrajectoryState_TRAJECTORY_STATE_PENDING
	var closed atomic.Uint64
	c.before = func(_ context.Context, method string, req any) error {
		switch r := req.(type) {
		case *rotav1.GetTrajectoryRequest:
			return connect.NewError(connect.CodePermissionDenied, errors.New("may not read"))
		case *rotav1.CloseTrajectoryRequest:
			closed.Store(r.Id)
		}
		return nil
	}
	status, body, _ := call(t, "POST", server.URL+"/sandboxes", strings.NewReader(`{"templateID":"base"}`), "Content-Type", "application/json")
	if status != 403 || closed.Load() != 7 {
		t.Errorf("%d %s, and %d is closed", status, body, closed.Load())
	}
}

// stuckAnswer is taken by nobody.
type stuckAnswer struct {
	*httptest.ResponseRecorder
	late chan struct{}
}

func (s stuckAnswer) Write([]byte) (int, error) {
	<-s.late
	return 0, os.ErrDeadlineExceeded
}

// SetWriteDeadline ends a write.
func (s stuckAnswer) SetWriteDeadline(at time.Time) error {
	if !at.IsZero() {
		close(s.late)
	}
	return nil
}

// TestListsAreShared: a list whose reader takes nothing is given up, so others get theirs.
func TestListsAreShared(t *testing.T) {
	_, _, e := world(t)
	r := httptest.NewRequest("POST", "/filesystem.Filesystem/ListDir", strings.NewReader(`{"path":"."}`))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set(sandboxHeader, "t7")
	w := stuckAnswer{httptest.NewRecorder(), make(chan struct{})}
	httpx.Patience{Max: 50 * time.Millisecond}.NewServer(e).Handler.ServeHTTP(w, r)
	select {
	case <-w.late:
	default:
		t.Error("nothing was written")
	}
	if e.lists.free != listsMax {
		t.Errorf("%d lists are free", e.lists.free)
	}
}

// TestKillTwice: a sandbox that another call ends at the same time is killed, too.
func TestKillTwice(t *testing.T) {
	c, server, _ := world(t)
	c.before = func(_ context.Context, method string, req any) error {
		if method == "CloseTrajectory" {
			return refusal(connect.CodeFailedPrecondition, "TRAJECTORY_ENDED", 0)
		}
		return nil
	}
	if status, body, _ := call(t, "DELETE", server.URL+"/sandboxes/t7", nil); status != 204 {
		t.Errorf("%d %s", status, body)
	}
}

// TestKilledMeanwhile: files of a sandbox that ends during a call are not taken for missing files.
func TestKilledMeanwhile(t *testing.T) {
	c, server, _ := world(t)
	c.before = func(_ context.Context, method string, req any) error {
		if strings.HasSuffix(method, "File") {
			return refusal(connect.CodeFailedPrecondition, "TRAJECTORY_ENDED", 0)
		}
		return nil
	}
	for _, method := range []string{"GET", "POST"} {
		status, body, _ := call(t, method, server.URL+"/files?path=x", strings.NewReader("x"), sandboxHeader, "t7", "Content-Type", "application/octet-stream")
		if status != 502 {
			t.Errorf("%s: %d %s", method, status, body)
		}
	}
}

// TestStartOnce: while the leader changes, a process is submitted again with the same request ID.
func TestStartOnce(t *testing.T) {
	c, server, _ := world(t)
	var ids []string
	c.before = func(_ context.Context, method string, req any) error {
		r, ok := req.(*rotav1.RunActionRequest)
		if !ok {
			return nil
		}
		if ids = append(ids, r.RequestId); len(ids) < 3 {
			return refusal(connect.CodeUnavailable, "UNKNOWN_OUTCOME", time.Millisecond)
		}
		return nil
	}
	c.script = []*rotav1.RunActionResponse{{Update: &rotav1.RunActionResponse_Action{Action: &rotav1.Action{Id: 5, Result: &rotav1.ActionResult{Reason: rotav1.EndReason_END_REASON_EXITED}}}}}
	client := processconnect.NewProcessClient(http.DefaultClient, server.URL, connect.WithProtoJSON())
	stream, err := client.Start(in(t, "t7"), &process.StartRequest{Process: &process.ProcessConfig{Cmd: "true"}})
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	events := 0
	for stream.Receive() {
		events++
	}
	if stream.Err() != nil || events != 2 || len(ids) != 3 || ids[0] == "" || ids[0] != ids[2] {
		t.Errorf("%d events, %v, with %q", events, stream.Err(), ids)
	}
}

// TestStuckInput: input that no process reads does not keep other namespaces from their calls.
func TestStuckInput(t *testing.T) {
	c, server, e := world(t)
	release := make(chan struct{})
	defer close(release)
	var stuck atomic.Int32
	c.before = func(ctx context.Context, method string, req any) error {
		if r, ok := req.(*rotav1.WriteActionInputRequest); ok && r.ActionId == 6 {
			stuck.Add(1)
			select {
			case <-release:
			case <-ctx.Done():
			}
			return refusal(connect.CodeFailedPrecondition, "ATTEMPT_ENDED", 0)
		}
		return nil
	}
	client := processconnect.NewProcessClient(http.DefaultClient, server.URL)
	large := &process.ProcessInput{Input: &process.ProcessInput_Stdin{Stdin: make([]byte, 3<<20)}}
	send := func(sandbox, tag string) error {
		_, err := client.SendInput(in(t, sandbox), &process.SendInputRequest{Process: &process.ProcessSelector{Selector: &process.ProcessSelector_Tag{Tag: tag}}, Input: large})
		return err
	}
	const held = 10 // 32 MiB are for one namespace
	for n := range int64(held) {
		go func() { _ = send("t11", "stuck") }()
		eventually(t, "it waits", func() bool {
			e.inputs.waiting.mu.Lock()
			defer e.inputs.waiting.mu.Unlock()
			return e.inputs.waiting.by["other"] == (n+1)*3<<20
		})
	}
	if err := send("t11", "stuck"); connect.CodeOf(err) != connect.CodeResourceExhausted || !strings.Contains(err.Error(), "too much input waits") {
		t.Errorf("one more: %v", err)
	}
	if err := send("t7", "job"); err != nil {
		t.Errorf("of another namespace: %v", err)
	}
}

// TestNames: names that are no text do not keep others from being listed.
func TestNames(t *testing.T) {
	c, server, _ := world(t)
	c.files = map[string]string{"a": "", "bad\xff": "x"}
	client := filesystemconnect.NewFilesystemClient(http.DefaultClient, server.URL, connect.WithProtoJSON())
	resp, err := client.ListDir(in(t, "t7"), &filesystem.ListDirRequest{Path: "/home/user"})
	if err != nil || len(resp.Entries) != 2 || resp.Entries[1].Name != "bad\ufffd" {
		t.Errorf("%v %v", resp, err)
	}
	if status, body, _ := call(t, "GET", server.URL+"/files?path=bad%ff", nil, sandboxHeader, "t7"); status != 400 {
		t.Errorf("%d %s", status, body)
	}
}

// TestRemoveAndList: the errors are those of E2B.
func TestRemoveAndList(t *testing.T) {
	c, server, _ := world(t)
	reason := "FILE_NOT_FOUND"
	c.before = func(_ context.Context, method string, _ any) error {
		switch method {
		case "RemoveFile":
			return refusal(connect.CodeNotFound, reason, 0)
		case "ListFiles":
			return refusal(connect.CodeFailedPrecondition, "NOT_A_DIRECTORY", 0)
		}
		return nil
	}
	client := filesystemconnect.NewFilesystemClient(http.DefaultClient, server.URL, connect.WithProtoJSON())
	if _, err := client.Remove(in(t, "t7"), &filesystem.RemoveRequest{Path: "x"}); err != nil {
		t.Errorf("of what is not there: %v", err)
	}
	reason = "TRAJECTORY_NOT_FOUND"
	if _, err := client.Remove(in(t, "t7"), &filesystem.RemoveRequest{Path: "x"}); connect.CodeOf(err) != connect.CodeUnavailable {
		t.Errorf("of a sandbox that is not there: %v", err)
	}
	if _, err := client.ListDir(in(t, "t7"), &filesystem.ListDirRequest{Path: "x"}); connect.CodeOf(err) != connect.CodeInvalidArgument {
		t.Errorf("a file: %v", err)
	}
}

// TestForms: forms that would take memory or never end are refused.
func TestForms(t *testing.T) {
	_, server, e := world(t)
	e.uploadMax = 1 << 20
	form := func(write func(*multipart.Writer)) (int, string) {
		var body bytes.Buffer
		parts := multipart.NewWriter(&body)
		write(parts)
		_ = parts.Close()
		status, text, _ := call(t, "POST", server.URL+"/files", &body, sandboxHeader, "t7", "Content-Type", parts.FormDataContentType())
		return status, text
	}
	for says, write := range map[string]func(*multipart.Writer){
		"too many files": func(parts *multipart.Writer) {
			for range partsMax + 1 {
				_ = parts.WriteField("other", "x")
			}
		},
		"too long": func(parts *multipart.Writer) { _ = parts.WriteField("other", strings.Repeat("x", 1<<20)) },
		"is too long": func(parts *multipart.Writer) {
			_, _ = parts.CreatePart(textproto.MIMEHeader{"X-Long": {strings.Repeat("x", 1<<20)}})
		},
		"which is the limit": func(parts *multipart.Writer) {
			for n := range 3 {
				part, _ := parts.CreateFormFile("file", fmt.Sprint(n))
				_, _ = part.Write(make([]byte, 512<<10))
			}
		},
		"has no file": func(parts *multipart.Writer) { _ = parts.WriteField("other", "x") },
	} {
		if status, text := form(write); status != 400 || !strings.Contains(text, says) {
			t.Errorf("%s: %d %s", says, status, text)
		}
	}
}

// free is how many more transfers there may be.
func (e *E2B) free() int64 {
	e.transfers.mu.Lock()
	defer e.transfers.mu.Unlock()
	return e.transfers.free
}

// TestSlow: whoever neither sends nor takes anything is given up, with HTTP/1.1 and with HTTP/2.
func TestSlow(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		c := &cluster{files: map[string]string{"large": strings.Repeat("x", 64<<20)}}
		e := New(Options{API: c, Templates: DefaultTemplates()})
		e.idleMax = 50 * time.Millisecond
		server := httptest.NewUnstartedServer(nil)
		server.Config = httpx.Patience{Max: e.idleMax}.NewServer(e)
		if server.EnableHTTP2 = h2; h2 {
			server.StartTLS()
		} else {
			server.Start()
		}
		body, more := io.Pipe()
		go func() { _, _ = more.Write([]byte("half")) }()
		req, err := http.NewRequestWithContext(t.Context(), "POST", server.URL+"/files?path=x", body)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/octet-stream")
		req.Header.Set(sandboxHeader, "t7")
		if resp, err := server.Client().Do(req); err != nil {
			t.Errorf("HTTP/2 %v: %v", h2, err)
		} else {
			if resp.StatusCode != 408 || h2 != (resp.ProtoMajor == 2) {
				t.Errorf("%s: an upload that stops: %d", resp.Proto, resp.StatusCode)
			}
			resp.Body.Close()
		}
		_ = more.Close()
		req, err = http.NewRequestWithContext(t.Context(), "GET", server.URL+"/files?path=large", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set(sandboxHeader, "t7")
		resp, err := server.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		eventually(t, "the download is given up", func() bool { return e.free() == transfersMax })
		if n, err := io.Copy(io.Discard, resp.Body); err == nil || n == 64<<20 {
			t.Errorf("HTTP/2 %v: all %d bytes were sent", h2, n)
		}
		resp.Body.Close()
		server.CloseClientConnections()
		server.Close()
	}
}

// TestWatchersAreShared: one namespace cannot take all watchers, and all is given back.
func TestWatchersAreShared(t *testing.T) {
	_, server, e := world(t)
	client := filesystemconnect.NewFilesystemClient(http.DefaultClient, server.URL, connect.WithProtoJSON())
	var ids []string
	var err error
	for err == nil && len(ids) < watchersMax {
		var resp *filesystem.CreateWatcherResponse
		if resp, err = client.CreateWatcher(in(t, "t7"), &filesystem.CreateWatcherRequest{Path: "."}); err == nil {
			ids = append(ids, resp.WatcherId)
		}
	}
	if connect.CodeOf(err) != connect.CodeResourceExhausted || len(ids) != watchersMax/2 {
		t.Errorf("it has %d: %v", len(ids), err)
	}
	if _, err := client.CreateWatcher(in(t, "t11"), &filesystem.CreateWatcherRequest{Path: "."}); err != nil {
		t.Errorf("another namespace: %v", err)
	}
	if _, err := client.RemoveWatcher(in(t, "t11"), &filesystem.RemoveWatcherRequest{WatcherId: ids[0]}); connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("another namespace removes one: %v", err)
	}
	for _, id := range ids {
		if _, err := client.RemoveWatcher(in(t, "t7"), &filesystem.RemoveWatcherRequest{WatcherId: id}); err != nil {
			t.Fatal(err)
		}
	}
	e.watchers.forgetIdle(time.Now().Add(2 * watcherIdle))
	if e.watchers.kept.free != watchersMax || e.watchers.memory.free != seenBytesMax {
		t.Errorf("%d watchers and %d bytes are free", e.watchers.kept.free, e.watchers.memory.free)
	}
}
