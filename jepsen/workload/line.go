package workload

import (
	"context"
	"net/http"
	"sync/atomic"

	"rota/api/httpx"
)

// line is how a client of the library reaches the servers. It can be cut: then
// nothing gets through, in either direction, and nobody is told so.
type line struct {
	http *http.Client
	down atomic.Bool
}

func (env *Env) newLine() *line { return &line{http: httpx.NewClient(env.TLS)} }

// Do makes a call, or loses it.
func (l *line) Do(req *http.Request) (*http.Response, error) {
	if !l.down.Load() {
		resp, err := l.http.Do(req)
		if !l.down.Load() {
			return resp, err
		}
		if err == nil {
			resp.Body.Close()
		}
	}
	<-req.Context().Done()
	return nil, context.Cause(req.Context())
}

// CloseIdleConnections is called when the client is closed.
func (l *line) CloseIdleConnections() { l.http.CloseIdleConnections() }

func (l *line) cut()  { l.down.Store(true) }
func (l *line) mend() { l.down.Store(false) }
