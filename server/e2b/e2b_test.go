package e2b

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"connectrpc.com/connect"

	"rota/api/codec"
	"rota/api/gen/e2b/filesystem"
	"rota/api/gen/e2b/filesystem/filesystemconnect"
	"rota/api/gen/e2b/process"
	"rota/api/gen/e2b/process/processconnect"
	rotav1 "rota/api/gen/rota/v1"
	"rota/api/gen/rota/v1/rotav1connect"
)

// cluster stands in for the API of a server: trajectory 7 is open, and has files in memory.
type cluster struct {
	rotav1connect.UnimplementedTrajectoryServiceHandler
	rotav1connect.UnimplementedFileServiceHandler
	rotav1connect.UnimplementedActionServiceHandler
	rotav1connect.UnimplementedStreamServiceHandler
	rotav1connect.UnimplementedAccessServiceHandler
	rotav1connect.UnimplementedSnapshotServiceHandler
	rotav1connect.UnimplementedUsageServiceHandler
	mu    sync.Mutex
	files map[string]string
	// bearer is what the newest call was authorized with, run what it was to run.
	bearer string
	run    *rotav1.ActionSpec
	opened *rotav1.OpenTrajectoryRequest
	listed *rotav1.ListTrajectoriesRequest
	// input is what was written to action 5.
	input string
	// read is how many bytes the newest call read of a file.
	read int
	// script is what a run answers.
	script []*rotav1.RunActionResponse
	// state is that of a trajectory that is opened; unset: it is open.
	state rotav1.TrajectoryState
	// pause is that of trajectory 7, extended what it was extended by.
	pause    rotav1.PauseState
	labels   map[string]string // of trajectory 7
	reader   bool              // the caller may only read
	lost     bool              // the first answer to a pause and to a resumption
	extended []*rotav1.ExtendTrajectoryRequest
	// kept is a snapshot of trajectory 7; nil: there is none.
	kept *rotav1.Snapshot
	// before is asked before each call, by the name of its method, and may refuse it.
	before func(ctx context.Context, method string, req any) error
}

// refused is what before says.
func (c *cluster) refused() connect.Option {
	return connect.WithInterceptors(connect.UnaryInterceptorFunc(func(next connect.UnaryFunc) connect.UnaryFunc {
		return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
			if c.before != nil {
				if err := c.before(ctx, path.Base(req.Spec().Procedure), req.Any()); err != nil {
					return nil, err
				}
			}
			return next(ctx, req)
		}
	}))
}

func (c *cluster) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	c.bearer = r.Header.Get("Authorization")
	c.mu.Unlock()
	mux := http.NewServeMux()
	mux.Handle(rotav1connect.NewTrajectoryServiceHandler(c, c.refused()))
	mux.Handle(rotav1connect.NewFileServiceHandler(c, codec.ForHandler(), c.refused()))
	mux.Handle(rotav1connect.NewActionServiceHandler(c, c.refused()))
	mux.Handle(rotav1connect.NewStreamServiceHandler(c, c.refused()))
	mux.Handle(rotav1connect.NewAccessServiceHandler(c, c.refused()))
	mux.Handle(rotav1connect.NewSnapshotServiceHandler(c, c.refused()))
	mux.Handle(rotav1connect.NewUsageServiceHandler(c, c.refused()))
	mux.ServeHTTP(w, r)
}

func (c *cluster) GetTrajectory(_ context.Context, req *rotav1.GetTrajectoryRequest) (*rotav1.GetTrajectoryResponse, error) {
	switch req.Id {
	case 7:
		return &rotav1.GetTrajectoryResponse{Trajectory: &rotav1.Trajectory{Id: 7, State: rotav1.TrajectoryState_TRAJECTORY_STATE_OPEN, Namespace: "team", Pause: c.pause, Labels: c.labels}}, nil
	case 11:
		return &rotav1.GetTrajectoryResponse{Trajectory: &rotav1.Trajectory{Id: 11, State: rotav1.TrajectoryState_TRAJECTORY_STATE_OPEN, Namespace: "other"}}, nil
	case 8:
		return &rotav1.GetTrajectoryResponse{Trajectory: &rotav1.Trajectory{Id: 8, State: rotav1.TrajectoryState_TRAJECTORY_STATE_CLOSED}}, nil
	}
	return nil, connect.NewError(connect.CodeNotFound, fmt.Errorf("there is no trajectory %d", req.Id))
}

func (c *cluster) CloseTrajectory(context.Context, *rotav1.CloseTrajectoryRequest) (*rotav1.CloseTrajectoryResponse, error) {
	return &rotav1.CloseTrajectoryResponse{}, nil
}

func (c *cluster) GetAccess(context.Context, *rotav1.GetAccessRequest) (*rotav1.GetAccessResponse, error) {
	return &rotav1.GetAccessResponse{}, nil
}

func (c *cluster) OpenTrajectory(_ context.Context, req *rotav1.OpenTrajectoryRequest) (*rotav1.OpenTrajectoryResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.opened = req
	return &rotav1.OpenTrajectoryResponse{Trajectory: &rotav1.Trajectory{Id: 7, State: cmp.Or(c.state, rotav1.TrajectoryState_TRAJECTORY_STATE_OPEN), Labels: req.Labels}}, nil
}

func (c *cluster) ListTrajectories(_ context.Context, req *rotav1.ListTrajectoriesRequest) (*rotav1.ListTrajectoriesResponse, error) {
	c.listed = req
	return &rotav1.ListTrajectoriesResponse{Trajectories: []*rotav1.Trajectory{{Id: 7, Labels: map[string]string{templateLabel: baseTemplate, "a": "b"}}}, NextPageToken: "next"}, nil
}

func (c *cluster) StatFile(_ context.Context, req *rotav1.StatFileRequest) (*rotav1.StatFileResponse, error) {
	if req.Path == "" {
		return &rotav1.StatFileResponse{File: &rotav1.File{Type: rotav1.FileType_FILE_TYPE_DIRECTORY, Mode: 0o755}}, nil
	}
	if content, ok := c.files[req.Path]; ok {
		return &rotav1.StatFileResponse{File: &rotav1.File{Type: rotav1.FileType_FILE_TYPE_REGULAR, SizeBytes: uint64(len(content)), Mode: 0o644}}, nil
	}
	return nil, connect.NewError(connect.CodeNotFound, fmt.Errorf("%s is not there", req.Path))
}

func (c *cluster) WriteFile(_ context.Context, req *rotav1.WriteFileRequest) (*rotav1.WriteFileResponse, error) {
	old, end := c.files[req.Path], req.Offset+uint64(len(req.Data))
	content := old[:req.Offset] + string(req.Data)
	if !req.Truncate && end < uint64(len(old)) {
		content += old[end:]
	}
	c.files[req.Path] = content
	return &rotav1.WriteFileResponse{}, nil
}

func (c *cluster) ListFiles(context.Context, *rotav1.ListFilesRequest) (*rotav1.ListFilesResponse, error) {
	resp := &rotav1.ListFilesResponse{}
	for _, name := range slices.Sorted(maps.Keys(c.files)) {
		resp.Files = append(resp.Files, &rotav1.File{Name: name, Type: rotav1.FileType_FILE_TYPE_REGULAR, SizeBytes: uint64(len(c.files[name]))})
	}
	return resp, nil
}

func (c *cluster) ReadFile(_ context.Context, req *rotav1.ReadFileRequest) (*rotav1.ReadFileResponse, error) {
	content, ok := c.files[req.Path]
	if !ok {
		return nil, connect.NewError(connect.CodeNotFound, fmt.Errorf("%s is not there", req.Path))
	}
	data := content[req.Offset:min(int(req.Offset)+int(req.BytesMax), len(content))]
	c.read = len(data)
	return &rotav1.ReadFileResponse{Data: []byte(data), SizeBytes: uint64(len(content))}, nil
}

func (c *cluster) RunAction(ctx context.Context, req *rotav1.RunActionRequest, stream *connect.ServerStream[rotav1.RunActionResponse]) error {
	c.run = req.Action
	if c.before != nil {
		if err := c.before(ctx, "RunAction", req); err != nil {
			return err
		}
	}
	for _, update := range c.script {
		if err := stream.Send(update); err != nil {
			return err
		}
	}
	return nil
}

func (c *cluster) ListActions(_ context.Context, req *rotav1.ListActionsRequest) (*rotav1.ListActionsResponse, error) {
	if req.Namespace == "other" {
		return &rotav1.ListActionsResponse{Actions: []*rotav1.Action{{Id: 6, Spec: &rotav1.ActionSpec{Name: "stuck", Stdin: true}}}}, nil
	}
	if req.Namespace != "team" || req.TrajectoryId != 7 {
		return nil, fmt.Errorf("it lists %v", req)
	}
	return &rotav1.ListActionsResponse{Actions: []*rotav1.Action{{Id: 1<<32 + 5, Spec: &rotav1.ActionSpec{Name: "job", Stdin: true}}}}, nil
}

// WriteActionInput takes at most 1,000 bytes at once, as a full pipe does.
func (c *cluster) WriteActionInput(_ context.Context, req *rotav1.WriteActionInputRequest) (*rotav1.WriteActionInputResponse, error) {
	if req.ActionId != 1<<32+5 || len(req.Data) > inputBytesMax || req.Offset != nil && *req.Offset != uint64(len(c.input)) {
		return nil, fmt.Errorf("it writes %v", req)
	}
	c.input += string(req.Data[:min(len(req.Data), 1000)])
	return &rotav1.WriteActionInputResponse{Offset: uint64(len(c.input))}, nil
}

// world is a server with the package in front of a stand-in, and a page that is not E2B's.
func world(t *testing.T) (*cluster, *httptest.Server, *E2B) {
	t.Helper()
	c := &cluster{files: map[string]string{}}
	e := New(Options{API: c, Templates: DefaultTemplates()})
	other := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })
	server := httptest.NewServer(e.Before(other))
	t.Cleanup(server.Close)
	return c, server, e
}

// call makes a request with headers in pairs, and returns the status and the body.
func call(t *testing.T, method, url string, body io.Reader, headers ...string) (int, string, http.Header) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, body)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
		if headers[i] == "Host" {
			req.Host = headers[i+1]
		}
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(raw), resp.Header
}

// TestRouting: what is E2B's by its path, its header or its host is answered, and nothing else.
func TestRouting(t *testing.T) {
	_, server, _ := world(t)
	for _, x := range []struct {
		method, path string
		headers      []string
		status       int
		says         string
	}{
		{"GET", "/health", nil, http.StatusTeapot, ""},
		{"GET", "/ui/", []string{sandboxHeader, "t7"}, http.StatusTeapot, ""},
		{"GET", "/rota.v1.ActionService/GetAction", []string{sandboxHeader, "t7"}, http.StatusTeapot, ""},
		{"GET", "/health", []string{sandboxHeader, "t7"}, 204, ""},
		{"GET", "/health", []string{"Host", "49983-t7.example.com"}, 204, ""},
		{"GET", "/ui/", []string{"Host", "49983-t7.example.com"}, 404, ""},
		{"GET", "/health", []string{"Host", "3000-t7.example.com"}, 501, "does not pass requests on to ports"},
		{"GET", "/health", []string{sandboxHeader, "t7", portHeader, "3000"}, 501, "does not pass requests on to ports"},
		{"GET", "/health", []string{sandboxHeader, "t8"}, 502, "t8\\\" is not running"},
		{"GET", "/health", []string{sandboxHeader, "t9"}, 502, "there is no sandbox"},
		{"GET", "/health", []string{sandboxHeader, "t07"}, 502, "not running"},
		{"GET", "/health", []string{sandboxHeader, "../../etc"}, 502, "not running"},
		{"POST", "/process.Process/List", nil, 400, "names no sandbox"},
		{"GET", "/sandboxes/t7", nil, 200, `"sandboxID":"t7"`},
		{"GET", "/v2/sandboxes/t8", nil, 404, "no sandbox"},
		{"GET", "/sandboxes/t18446744073709551616", nil, 404, "no sandbox"},
		{"PUT", "/sandboxes/t7/network", nil, 501, "rota does not change the network"},
		{"GET", "/v2/templates", nil, 501, "rota does not serve this part"},
		{"DELETE", "/templates/base", nil, 404, "listed by an operator"},
	} {
		status, body, _ := call(t, x.method, server.URL+x.path, nil, x.headers...)
		if status != x.status || !strings.Contains(body, x.says) {
			t.Errorf("%s %s %v: %d %q", x.method, x.path, x.headers, status, body)
		}
	}
}

// TestOtherSites: a page of another site cannot write, not even in the ways for which browsers do
// not ask first.
func TestOtherSites(t *testing.T) {
	c, server, _ := world(t)
	for _, headers := range [][]string{
		{"Host", "49983-t7.localhost", "Origin", "https://evil.example", "Content-Type", "multipart/form-data; boundary=x"},
		{"Host", "49983-t7.localhost", "Sec-Fetch-Site", "cross-site", "Content-Type", "application/octet-stream"},
	} {
		if status, body, _ := call(t, "POST", server.URL+"/files?path=x", strings.NewReader("x"), headers...); status != 403 {
			t.Errorf("%v: %d %q", headers, status, body)
		}
	}
	if status, body, _ := call(t, "POST", server.URL+"/sandboxes", strings.NewReader("{}"), "Content-Type", "text/plain"); status != 400 {
		t.Errorf("a sandbox of plain text: %d %q", status, body)
	}
	if len(c.files) > 0 || c.opened != nil {
		t.Error("something was written")
	}
}

// TestKeys: a key that is a token of rota goes along with each call, and comes back as the token
// for the sandbox; another one means nothing.
func TestKeys(t *testing.T) {
	c, server, _ := world(t)
	for key, bearer := range map[string]string{"rota_abc": "Bearer rota_abc", "a.b.c": "Bearer a.b.c", "any": "", "": ""} {
		_, body, _ := call(t, "GET", server.URL+"/sandboxes/t7", nil, keyHeader, key, "Authorization", "Bearer rota_other")
		if has := strings.Contains(body, "envdAccessToken"); c.bearer != bearer || has != (bearer != "") {
			t.Errorf("key %q: %q %s", key, c.bearer, body)
		}
		if call(t, "GET", server.URL+"/health", nil, sandboxHeader, "t7", tokenHeader, key); c.bearer != bearer {
			t.Errorf("token %q: %q", key, c.bearer)
		}
	}
}

// TestCreate: what a sandbox is made of, and what is refused.
func TestCreate(t *testing.T) {
	c, server, _ := world(t)
	create := func(body string) (int, string) {
		status, text, _ := call(t, "POST", server.URL+"/v2/sandboxes", strings.NewReader(body), "Content-Type", "application/json", namespaceHeader, "team")
		return status, text
	}
	status, body := create(`{"templateID":"base","metadata":{"a":"b"},"envVars":{"X":"1"},"timeout":60,"secure":true,"autoPause":false}`)
	var got started
	if err := json.Unmarshal([]byte(body), &got); err != nil || status != 201 || got != (started{SandboxID: "t7", TemplateID: "base", ClientID: "rota", EnvdVersion: envdVersion}) {
		t.Errorf("%d %s %v", status, body, err)
	}
	if o := c.opened; o.Namespace != "team" || o.Labels["a"] != "b" || o.Labels[templateLabel] != "base" || o.Spec.Env["X"] != "1" || o.Timeout.AsDuration().Seconds() != 60 || o.MemoryBytes != memoryDefault {
		t.Errorf("it opened %v", o)
	}
	if create(`{"templateID":"base","autoPause":true,"autoResume":{"enabled":true}}`); !c.opened.PauseAtTimeout || !resumes(&rotav1.Trajectory{Labels: c.opened.Labels}) {
		t.Errorf("it opened %v", c.opened)
	}
	for body, says := range map[string]string{
		`{"templateID":"none"}`:              "no template",
		`{`:                                  "not the JSON",
		`[]`:                                 "not the JSON",
		`{"templateID":"base","timeout":-1}`: "must be 0 to",
		`{"templateID":"base","timeout":99999999999}`:                      "must be 0 to",
		`{"templateID":"base","timeout":0}`:                                "at least a second",
		`{"templateID":"base","metadata":{"e2b/auto-resume":"true"}}`:      "rota's own",
		`{"templateID":"base","allow_internet_access":false}`:              "network",
		`{"templateID":"base","volumeMounts":[{}]}`:                        "mount volumes",
		`{"templateID":"base","metadata":{"e2b/template":"big"}}`:          "rota's own",
		`{"templateID":"base","x":"` + strings.Repeat("x", 2<<20) + `"}`:   "too large",
		`{"templateID":"base","network":{"allowOut":["example.com:443"]}}`: "rules for the network",
	} {
		if status, text := create(body); status < 400 || status >= 500 || !strings.Contains(text, says) {
			t.Errorf("%.80s: %d %s", body, status, text)
		}
	}
}

// TestList: filters reach the API as labels, and the next page is in a header.
func TestList(t *testing.T) {
	c, server, _ := world(t)
	status, body, header := call(t, "GET", server.URL+"/v2/sandboxes?metadata=owner%3Dalice%252520%252526%252520bob%26run%3D7&limit=5000&nextToken=t&order=asc&template=base&startedAfter=2026-01-02T03:04:05.678Z", nil)
	if status != 200 || !strings.Contains(body, `"metadata":{"a":"b"}`) || header.Get("X-Next-Token") != "next" {
		t.Errorf("%d %s %v", status, body, header)
	}
	if l := c.listed; l.Labels["owner"] != "alice & bob" || l.Labels["run"] != "7" || l.Labels[templateLabel] != "base" || l.PageSize != listMax || l.PageToken != "t" || l.NewestFirst || l.OpenedSince == nil {
		t.Errorf("it asked for %v", l)
	}
	for _, query := range []string{"limit=0", "limit=-1", "order=up", "startedAfter=yesterday", "metadata=%25zz", "metadata=a%3D1%26a%3D2"} {
		if status, body, _ := call(t, "GET", server.URL+"/v2/sandboxes?"+query, nil); status != 400 {
			t.Errorf("%s: %d %s", query, status, body)
		}
	}
	if _, body, _ := call(t, "GET", server.URL+"/v2/sandboxes?state=paused", nil); strings.TrimSpace(body) != "[]" {
		t.Errorf("paused: %s", body)
	}
}

// TestContent: files are stored whole in each way that SDKs send them, and read again.
func TestContent(t *testing.T) {
	c, server, e := world(t)
	large, whole := strings.Repeat("0123456789", 250_000), strings.Repeat("abcdefgh", 2*chunkBytes/8)
	for _, name := range []string{"plain", "empty", "whole"} { // longer ones were there before
		c.files[name] = strings.Repeat("old", 1<<20)
	}
	var packed, form bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, _ = z.Write([]byte(large))
	_ = z.Close()
	parts := multipart.NewWriter(&form)
	for _, name := range []string{"/home/user/dir/a", "~/b"} {
		part, err := parts.CreateFormFile("file", name)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(part, "in "+name)
	}
	_ = parts.Close()
	send := func(query string, body io.Reader, headers ...string) (int, string) {
		status, text, _ := call(t, "POST", server.URL+"/files?"+query, body, append(headers, sandboxHeader, "t7")...)
		return status, text
	}
	const octets = "application/octet-stream"
	for query, x := range map[string]struct {
		body    io.Reader
		headers []string
	}{
		"path=plain":  {strings.NewReader(large), []string{"Content-Type", octets}},
		"path=packed": {&packed, []string{"Content-Type", octets, "Content-Encoding", "gzip"}},
		"path=whole":  {strings.NewReader(whole), []string{"Content-Type", octets}},
		"path=empty":  {http.NoBody, []string{"Content-Type", octets}},
		"":            {&form, []string{"Content-Type", parts.FormDataContentType()}},
	} {
		if status, text := send(query, x.body, x.headers...); status != 200 {
			t.Errorf("%s: %d %s", query, status, text)
		}
	}
	for name, want := range map[string]string{"plain": large, "packed": large, "whole": whole, "empty": "", "dir/a": "in /home/user/dir/a", "b": "in ~/b"} {
		if got, ok := c.files[name]; !ok || got != want {
			t.Errorf("%s has %d bytes, want %d", name, len(got), len(want))
		}
		status, text, header := call(t, "GET", server.URL+"/files?path=/home/user/"+name, nil, sandboxHeader, "t7")
		if status != 200 || text != want || header.Get("Content-Type") != octets || header.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: %d, %d bytes, %v", name, status, len(text), header)
		}
	}
	e.uploadMax = 2 << 20
	if status, text := send("path=large", strings.NewReader(large), "Content-Type", octets); status != 400 || !strings.Contains(text, "which is the limit") {
		t.Errorf("too large: %d %s", status, text)
	}
	for query, headers := range map[string][]string{
		"path=../x": {"Content-Type", octets}, "path=/etc/x": {"Content-Type", octets}, "path=": {"Content-Type", octets},
		"path=x": {"Content-Type", "text/plain"}, "path=y": {"Content-Type", octets, "Content-Encoding", "br"},
		"path=z": {"Content-Type", octets, "Content-Encoding", "gzip"}, "path=u&username=root": {"Content-Type", octets},
	} {
		if status, text := send(query, strings.NewReader("not gzip"), headers...); status != 400 {
			t.Errorf("%s %v: %d %s", query, headers, status, text)
		}
	}
}

// TestCutOff: an upload whose rest does not come is no success.
func TestCutOff(t *testing.T) {
	_, _, e := world(t)
	r := httptest.NewRequest("POST", "/files?path=x", io.MultiReader(strings.NewReader("half"), &broken{}))
	r.Header.Set("Content-Type", "application/octet-stream")
	r.Header.Set(sandboxHeader, "t7")
	w := httptest.NewRecorder()
	if e.ServeHTTP(w, r); w.Code != 400 || !strings.Contains(w.Body.String(), "ends in the middle") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

type broken struct{}

func (*broken) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// TestProcess: the events of an action are those of a process, and what is asked for reaches it.
func TestProcess(t *testing.T) {
	c, server, _ := world(t)
	action := func(r *rotav1.ActionResult) *rotav1.RunActionResponse {
		return &rotav1.RunActionResponse{Update: &rotav1.RunActionResponse_Action{Action: &rotav1.Action{Id: 1<<32 + 5, Result: r}}}
	}
	output := &rotav1.RunActionResponse{Update: &rotav1.RunActionResponse_Output{Output: &rotav1.OutputChunk{Stream: rotav1.OutputStream_OUTPUT_STREAM_STDERR, Data: []byte("err")}}}
	client := processconnect.NewProcessClient(http.DefaultClient, server.URL, connect.WithProtoJSON())
	for _, x := range []struct {
		result *rotav1.ActionResult
		want   string
		code   connect.Code
	}{
		{&rotav1.ActionResult{Reason: rotav1.EndReason_END_REASON_EXITED}, "start 5, stderr err, end 0 true exit status 0 ", 0},
		{&rotav1.ActionResult{Reason: rotav1.EndReason_END_REASON_EXITED, ExitCode: 3}, "start 5, stderr err, end 3 true exit status 3 exit status 3", 0},
		{&rotav1.ActionResult{Reason: rotav1.EndReason_END_REASON_SIGNALED, Signal: 15}, "start 5, stderr err, end -1 false signal: terminated signal: terminated", 0},
		{&rotav1.ActionResult{Reason: rotav1.EndReason_END_REASON_START_FAILED, Message: "no bash"}, "start 5, stderr err, end -1 false the process could not be started: no bash the process could not be started: no bash", 0},
		{&rotav1.ActionResult{Reason: rotav1.EndReason_END_REASON_TIMEOUT}, "start 5, stderr err", connect.CodeDeadlineExceeded},
		{&rotav1.ActionResult{Reason: rotav1.EndReason_END_REASON_TRAJECTORY_ENDED}, "start 5, stderr err", connect.CodeUnavailable},
	} {
		c.script = []*rotav1.RunActionResponse{action(nil), output, action(x.result)}
		ctx, info := connect.NewClientContext(t.Context())
		info.RequestHeader().Set(sandboxHeader, "t7")
		cwd := "/home/user/src"
		stream, err := client.Start(ctx, &process.StartRequest{Process: &process.ProcessConfig{Cmd: "/bin/bash", Args: []string{"-c", "x"}, Cwd: &cwd}})
		if err != nil {
			t.Fatal(err)
		}
		var said []string
		for stream.Receive() {
			switch e := stream.Msg().Event.Event.(type) {
			case *process.ProcessEvent_Start:
				said = append(said, fmt.Sprint("start ", e.Start.Pid))
			case *process.ProcessEvent_Data:
				said = append(said, fmt.Sprintf("stderr %s", e.Data.GetStderr()))
			case *process.ProcessEvent_End:
				said = append(said, fmt.Sprint("end ", e.End.ExitCode, " ", e.End.Exited, " ", e.End.Status, " ", e.End.GetError()))
			}
		}
		err = stream.Err()
		if got := strings.Join(said, ", "); got != x.want || x.code == 0 && err != nil || x.code != 0 && connect.CodeOf(err) != x.code {
			t.Errorf("%v: %q, %v", x.result, got, err)
		}
		_ = stream.Close()
	}
	if r := c.run; r.TrajectoryId != 7 || r.Command.Dir != "src" || !r.Stdin || strings.Join(r.Command.Argv, " ") != "/bin/bash -c x" || r.Resources.GetCores() != 1 {
		t.Errorf("it ran %v", r)
	}
}

// TestRefusals: hostile calls of the services are refused in the words of Connect.
func TestRefusals(t *testing.T) {
	_, server, _ := world(t)
	files := filesystemconnect.NewFilesystemClient(http.DefaultClient, server.URL, connect.WithProtoJSON())
	processes := processconnect.NewProcessClient(http.DefaultClient, server.URL, connect.WithProtoJSON())
	for want, do := range map[string]func(context.Context) error{
		"leads out of": func(ctx context.Context) error {
			_, err := files.Stat(ctx, &filesystem.StatRequest{Path: "a/../../x"})
			return err
		},
		"outside of /home/user": func(ctx context.Context) error {
			_, err := files.Remove(ctx, &filesystem.RemoveRequest{Path: "/home/user/../other"})
			return err
		},
		"null byte": func(ctx context.Context) error {
			_, err := files.MakeDir(ctx, &filesystem.MakeDirRequest{Path: "a\x00b"})
			return err
		},
		"SIGTERM or SIGKILL": func(ctx context.Context) error {
			_, err := processes.SendSignal(ctx, &process.SendSignalRequest{Signal: 19})
			return err
		},
	} {
		ctx, info := connect.NewClientContext(t.Context())
		info.RequestHeader().Set(sandboxHeader, "t7")
		if err := do(ctx); connect.CodeOf(err) != connect.CodeInvalidArgument || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q: %v", want, err)
		}
	}
	ctx, info := connect.NewClientContext(t.Context())
	info.RequestHeader().Set(sandboxHeader, "t7")
	info.RequestHeader().Set("Authorization", "Basic cm9vdDo=")
	if _, err := files.Stat(ctx, &filesystem.StatRequest{Path: "x"}); connect.CodeOf(err) != connect.CodeInvalidArgument || !strings.Contains(err.Error(), `not "root"`) {
		t.Errorf("as root: %v", err)
	}
	ctx, info = connect.NewClientContext(t.Context())
	info.RequestHeader().Set(sandboxHeader, "t8")
	if _, err := files.Stat(ctx, &filesystem.StatRequest{Path: "x"}); connect.CodeOf(err) != connect.CodeUnavailable {
		t.Errorf("of a sandbox that has ended: %v", err)
	}
}

// TestTemplates: files that are used, and files that are not.
func TestTemplates(t *testing.T) {
	read := func(text string) (Templates, error) {
		path := filepath.Join(t.TempDir(), "templates.json")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return ReadTemplates(path)
	}
	all, err := read(`{"base": {}, "big": {"pool": "builds", "memory_bytes": 1024, "cores": 2, "max_cores": 8}}`)
	if err != nil || all["base"] != DefaultTemplates()["base"] || all["big"] != (template{"builds", 1024, 2, 8}) {
		t.Errorf("%v %v", all, err)
	}
	for _, text := range []string{"", "{}", "[]", `{"base": {"cpus": 1}}`, `{"base": {"cores": 2, "max_cores": 1}}`, `{"base": {}} {}`} {
		if all, err := read(text); err == nil {
			t.Errorf("%s: %v", text, all)
		}
	}
}

// TestInput: all of an input is written, in order, in one call and as a stream.
func TestInput(t *testing.T) {
	c, server, e := world(t)
	client := processconnect.NewProcessClient(http.DefaultClient, server.URL, connect.WithProtoJSON())
	large := strings.Repeat("0123456789", 20_000)
	pid := &process.ProcessSelector{Selector: &process.ProcessSelector_Pid{Pid: 5}}
	input := func(text string) *process.ProcessInput {
		return &process.ProcessInput{Input: &process.ProcessInput_Stdin{Stdin: []byte(text)}}
	}
	ctx, info := connect.NewClientContext(t.Context())
	info.RequestHeader().Set(sandboxHeader, "t7")
	if _, err := client.SendInput(ctx, &process.SendInputRequest{Process: pid, Input: input(large)}); err != nil || c.input != large {
		t.Fatalf("%d bytes, %v", len(c.input), err)
	}
	ctx, info = connect.NewClientContext(t.Context())
	info.RequestHeader().Set(sandboxHeader, "t7")
	stream, err := client.StreamInput(ctx)
	if err != nil {
		t.Fatal(err)
	}
	tag := &process.ProcessSelector{Selector: &process.ProcessSelector_Tag{Tag: "job"}}
	for _, m := range []*process.StreamInputRequest{
		{Event: &process.StreamInputRequest_Start{Start: &process.StreamInputRequest_StartEvent{Process: tag}}},
		{Event: &process.StreamInputRequest_Data{Data: &process.StreamInputRequest_DataEvent{Input: input("one")}}},
		{Event: &process.StreamInputRequest_Keepalive{Keepalive: &process.StreamInputRequest_KeepAlive{}}},
		{Event: &process.StreamInputRequest_Data{Data: &process.StreamInputRequest_DataEvent{Input: input("two")}}},
	} {
		if err := stream.Send(m); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := stream.CloseAndReceive(); err != nil || c.input != large+"onetwo" {
		t.Errorf("the end is %q, %v", c.input[len(large):], err)
	}
	if len(e.inputs.locks) > 0 {
		t.Errorf("%d locks are left", len(e.inputs.locks))
	}
}
