package ui

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/hashicorp/go-hclog"

	"rota/api/codec"
	rotav1 "rota/api/gen/rota/v1"
	"rota/api/gen/rota/v1/rotav1connect"
	"rota/api/httpx"
)

// stuck is an answer whose reader takes nothing: a write ends at its deadline.
type stuck struct {
	*httptest.ResponseRecorder
	late chan struct{}
}

func (s stuck) SetWriteDeadline(at time.Time) error {
	if !at.IsZero() {
		close(s.late)
	}
	return nil
}

func (s stuck) Write([]byte) (int, error) {
	<-s.late
	return 0, os.ErrDeadlineExceeded
}

// TestAReaderThatTakesNothingIsGivenUp: it must not keep a place of the open pages.
func TestAReaderThatTakesNothingIsGivenUp(t *testing.T) {
	ended := make(chan error, 1)
	server := httpx.Patience{Max: 50 * time.Millisecond}.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		ended <- sendEvent(w, "content", []byte("<p>"))
	}))
	server.Handler.ServeHTTP(stuck{httptest.NewRecorder(), make(chan struct{})}, httptest.NewRequest(http.MethodGet, "/", nil))
	if err := <-ended; !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error(err)
	}
}

// refusing is an API that knows no token. It counts the places for open pages that are free meanwhile.
type refusing struct {
	rotav1connect.UnimplementedAccessServiceHandler
	ui   *UI
	free []int
}

func (f *refusing) GetAccess(context.Context, *rotav1.GetAccessRequest) (*rotav1.GetAccessResponse, error) {
	n := 0
	for {
		release, ok := f.ui.open.Take(strconv.Itoa(n))
		if !ok {
			break
		}
		defer release()
		n++
	}
	f.free = append(f.free, n)
	return nil, connect.NewError(connect.CodeUnauthenticated, errors.New("there is no such token"))
}

// TestACallerWithoutAValidIdentityTakesNoPlace of those that there are for open pages.
func TestACallerWithoutAValidIdentityTakesNoPlace(t *testing.T) {
	api, mux := &refusing{}, http.NewServeMux()
	mux.Handle(rotav1connect.NewAccessServiceHandler(api, codec.ForHandler()))
	api.ui = New(Options{API: mux, Counts: func() Counts { return Counts{} }, Logger: hclog.NewNullLogger()})
	for _, path := range []string{"/ui/live/overview", "/ui/live/nodes/n1"} {
		r := httptest.NewRequest(http.MethodGet, "https://s1:7400"+path, nil)
		r.TLS = &tls.ConnectionState{}
		r.Header.Set("Authorization", "Bearer junk")
		api.ui.ServeHTTP(httptest.NewRecorder(), r)
	}
	for _, free := range api.free {
		if free != livePagesMax {
			t.Errorf("%d places are free while a caller is looked up, want %d", free, livePagesMax)
		}
	}
	if len(api.free) == 0 {
		t.Error("nobody was looked up")
	}
}

// TestOpenPagesEndWithTheServer: a server that stops does not wait for those who look.
func TestOpenPagesEndWithTheServer(t *testing.T) {
	u := newPage(&actionsOnly{})
	ctx, stop := context.WithCancel(t.Context())
	go u.Run(ctx)
	srv := httptest.NewServer(u)
	defer srv.Close()
	resp, err := http.Get(srv.URL + "/ui/live/actions")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	stop()
	ended := make(chan error, 1)
	go func() {
		_, err := io.Copy(io.Discard, resp.Body)
		ended <- err
	}()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(20 * time.Second):
		srv.CloseClientConnections()
		t.Error("the page is still open")
	}
}
