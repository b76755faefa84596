package intake

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	rotav1 "rota/api/gen/rota/v1"
	"rota/api/gen/rota/v1/rotav1connect"
)

// service does what the test says with what it was sent.
type service struct {
	rotav1connect.UnimplementedActionServiceHandler
	submitted func(*rotav1.SubmitActionsRequest)
	watched   func(*rotav1.WatchActionsRequest)
	refuses   error // what submissions are answered
}

func (s service) SubmitActions(_ context.Context, req *rotav1.SubmitActionsRequest) (*rotav1.SubmitActionsResponse, error) {
	s.submitted(req)
	return &rotav1.SubmitActionsResponse{}, s.refuses
}

func (s service) WatchActions(_ context.Context, req *rotav1.WatchActionsRequest, _ *connect.ServerStream[rotav1.WatchActionsResponse]) error {
	s.watched(req)
	return nil
}

// serve starts a server with the service behind the intake and returns its URL.
func serve(t *testing.T, s service, limits Limits) string {
	t.Helper()
	mux := http.NewServeMux()
	path, h := rotav1connect.NewActionServiceHandler(s, ForHandler())
	mux.Handle(path, Handler(h, limits))
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return server.URL
}

const (
	submit = "/rota.v1.ActionService/SubmitActions"
	watch  = "/rota.v1.ActionService/WatchActions"
)

func post(t *testing.T, url, contentType, encoding, body string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", contentType)
	for _, name := range []string{"Content-Encoding", "Connect-Content-Encoding", "Grpc-Encoding"} {
		if encoding != "" {
			req.Header.Set(name, encoding)
		}
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.Status + " " + resp.Header.Get("Grpc-Status") + resp.Trailer.Get("Grpc-Status") + " " + string(answer)
}

func zipped(b []byte) string {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	w.Write(b)
	w.Close()
	return out.String()
}

func enveloped(flag byte, content string) string {
	return string(binary.BigEndian.AppendUint32([]byte{flag}, uint32(len(content)))) + content
}

// TestRequestsArriveAsTheyWereSent: in every protocol and encoding.
func TestRequestsArriveAsTheyWereSent(t *testing.T) {
	want := &rotav1.SubmitActionsRequest{RequestId: strings.Repeat("r", 100_000), Actions: []*rotav1.ActionSpec{{Name: "a"}}}
	raw, err := proto.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	text := `{"requestId":"` + want.RequestId + `","actions":[{"name":"a"}]}`
	for name, c := range map[string]struct{ contentType, encoding, body string }{
		"binary":           {"application/proto", "", string(raw)},
		"zipped binary":    {"application/proto", "gzip", zipped(raw)},
		"JSON":             {"application/json", "", text},
		"zipped JSON":      {"application/json", "gzip", zipped([]byte(text))},
		"gRPC":             {"application/grpc", "", enveloped(0, string(raw))},
		"zipped gRPC":      {"application/grpc+proto", "gzip", enveloped(1, zipped(raw))},
		"gRPC not zipped":  {"application/grpc+proto", "gzip", enveloped(0, string(raw))},
		"gRPC web in JSON": {"application/grpc-web+json", "", enveloped(0, text)},
	} {
		t.Run(name, func(t *testing.T) {
			budget := NewBudget(16 << 20)
			var got *rotav1.SubmitActionsRequest
			var used int64
			url := serve(t, service{submitted: func(req *rotav1.SubmitActionsRequest) { got, used = req, budget.Used() }},
				Limits{MessageBytes: 256 << 10, Budget: budget})
			if answer := post(t, url+submit, c.contentType, c.encoding, c.body); !proto.Equal(got, want) {
				t.Fatalf("not what was sent, answered %s", answer)
			}
			if used < int64(len(raw)) || used > 20*int64(len(raw)) {
				t.Errorf("a message of %d bytes took %d of the budget", len(raw), used)
			}
			if left := budget.Used(); left != 0 {
				t.Errorf("%d bytes were not given back", left)
			}
		})
	}
}

// TestRefusals: what is never decoded, and what its sender is told.
func TestRefusals(t *testing.T) {
	bomb := bytes.Repeat([]byte{0x22, 0}, 30_000)
	for name, c := range map[string]struct{ path, contentType, encoding, body, want string }{
		"too long":                 {submit, "application/proto", "", strings.Repeat("x", 70_000), "more than 65536 bytes"},
		"too long in an envelope":  {submit, "application/grpc", "", enveloped(0, strings.Repeat("x", 70_000)), " 8 "},
		"too long when expanded":   {submit, "application/proto", "gzip", zipped(make([]byte, 1<<20)), "more than 65536 bytes"},
		"too many messages":        {submit, "application/proto", "", string(bomb), "TOO_LARGE"},
		"too many, zipped":         {submit, "application/proto", "gzip", zipped(bomb), "TOO_LARGE"},
		"too many in gRPC":         {submit, "application/grpc", "gzip", enveloped(1, zipped(bomb)), " 8 "},
		"too many in JSON":         {submit, "application/json", "", `{"actions":[{}` + strings.Repeat(",{}", 10_000) + `]}`, "TOO_LARGE"},
		"too many in a stream":     {watch, "application/connect+proto", "", enveloped(0, strings.Repeat("\x0a\x00", 30_000)), "TOO_LARGE"},
		"not zipped":               {submit, "application/proto", "gzip", "x", "invalid_argument"},
		"cut off while zipped":     {submit, "application/proto", "gzip", zipped(bomb)[:20], "invalid_argument"},
		"zipped, and nothing says": {submit, "application/grpc", "", enveloped(1, zipped(bomb)), " 3 "},
		"another compression":      {submit, "application/proto", "br", "x", "unimplemented"},
		"no protocol buffer":       {submit, "application/proto", "", "\x22\xff", "invalid_argument"},
		"a cut envelope":           {watch, "application/connect+json", "", enveloped(0, "{}")[:6], "protocol error"},
		"a cut header":             {watch, "application/connect+json", "", "\x00\x00", "protocol error"},
	} {
		t.Run(name, func(t *testing.T) {
			budget := NewBudget(16 << 20)
			s := service{
				submitted: func(*rotav1.SubmitActionsRequest) { t.Error("it was decoded") },
				watched:   func(*rotav1.WatchActionsRequest) { t.Error("it was decoded") },
			}
			answer := post(t, serve(t, s, Limits{MessageBytes: 64 << 10, Budget: budget})+c.path, c.contentType, c.encoding, c.body)
			if !strings.Contains(answer, c.want) {
				t.Errorf("answered %q, want %q", answer, c.want)
			}
			if left := budget.Used(); left != 0 {
				t.Errorf("%d bytes were not given back", left)
			}
		})
	}
}

// TestASpentBudgetRefusesAtOnce, and the large before the small.
func TestASpentBudgetRefusesAtOnce(t *testing.T) {
	budget := NewBudget(2 << 20)
	inside, leave := make(chan bool), make(chan bool)
	url := serve(t, service{submitted: func(req *rotav1.SubmitActionsRequest) {
		if req.RequestId != "small" {
			inside <- true
			<-leave
		}
	}}, Limits{MessageBytes: 1 << 20, Budget: budget})
	large := `{"requestId":"` + strings.Repeat("x", 150<<10) + `"}` // about 1 MiB in memory
	done := make(chan string)
	go func() { done <- post(t, url+submit, "application/json", "", large) }()
	<-inside
	if answer := post(t, url+submit, "application/json", "", large); !strings.Contains(answer, "OVERLOADED") || !strings.HasPrefix(answer, "429") {
		t.Errorf("a second one is answered %q", answer)
	}
	if answer := post(t, url+submit, "application/json", "", `{"requestId":"small"}`); !strings.HasPrefix(answer, "200") {
		t.Errorf("a small one is answered %q", answer)
	}
	leave <- true
	if answer := <-done; !strings.HasPrefix(answer, "200") {
		t.Errorf("the first is answered %q", answer)
	}
	go func() { <-inside; leave <- true }()
	if answer := post(t, url+submit, "application/json", "", large); !strings.HasPrefix(answer, "200") {
		t.Errorf("one after it is answered %q", answer)
	}
	if budget.Used() != 0 || budget.Refused() != 1 {
		t.Errorf("%d bytes in use, %d refused", budget.Used(), budget.Refused())
	}
}

// TestAStreamHoldsNothing: watches live for days.
func TestAStreamHoldsNothing(t *testing.T) {
	budget := NewBudget(1 << 20)
	used := int64(-1)
	url := serve(t, service{watched: func(*rotav1.WatchActionsRequest) { used = budget.Used() }}, Limits{MessageBytes: 1 << 20, Budget: budget})
	if answer := post(t, url+watch, "application/connect+json", "", enveloped(0, "{}")); used != 0 {
		t.Errorf("%d bytes, answered %q", used, answer)
	}
}

// TestASlowSenderIsTurnedAway: it would hold a part of the budget for ever.
func TestASlowSenderIsTurnedAway(t *testing.T) {
	budget := NewBudget(1 << 20)
	failed := make(chan error)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b := newBody(w, r, methodOf(submit), &share{budget: budget, max: 1 << 20}, 64<<10)
		b.patience = 50 * time.Millisecond
		_, err := io.ReadAll(b)
		failed <- err
	}))
	defer server.Close()
	body, slow := io.Pipe()
	go func() {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL, body)
		if err != nil {
			t.Error(err)
			return
		}
		if resp, err := http.DefaultClient.Do(req); err == nil {
			resp.Body.Close()
		}
	}()
	if _, err := slow.Write([]byte("half")); err != nil {
		t.Fatal(err)
	}
	err := <-failed
	slow.Close()
	if connect.CodeOf(err) != connect.CodeDeadlineExceeded || budget.Used() != 0 {
		t.Errorf("%v, %d bytes in use", err, budget.Used())
	}
}

// BenchmarkWalk is the cost of an ordinary request of one action.
func BenchmarkWalk(b *testing.B) {
	spec := &rotav1.ActionSpec{
		Name: "test", Resources: &rotav1.Resources{Cores: proto.Uint32(2)},
		Command: &rotav1.Command{Argv: []string{"go", "test", "./..."}, Env: map[string]string{"A": "1", "B": "2"}},
	}
	raw, err := proto.Marshal(&rotav1.SubmitActionsRequest{RequestId: "r", Actions: []*rotav1.ActionSpec{spec}})
	if err != nil {
		b.Fatal(err)
	}
	s := methodOf(submit).request
	for b.Loop() {
		m := meter{limit: 1 << 30}
		if err := m.binary(s, raw); err != nil {
			b.Fatal(err)
		}
	}
}

// TestWhatNoBudgetHoldsIsTooLarge: it must not be told to come again.
func TestWhatNoBudgetHoldsIsTooLarge(t *testing.T) {
	budget := NewBudget(4 << 20)
	url := serve(t, service{submitted: func(*rotav1.SubmitActionsRequest) {}}, Limits{MessageBytes: 1 << 20, Budget: budget})
	if answer := post(t, url+submit, "application/json", "", `{"requestId":"`+strings.Repeat("x", 900<<10)+`"}`); !strings.Contains(answer, "TOO_LARGE") {
		t.Errorf("answered %q", answer)
	}
}
