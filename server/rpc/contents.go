package rpc

import (
	"context"
	"net/http"
	"time"

	"connectrpc.com/connect"

	"rota/api/gen/rota/v1/rotav1connect"
)

const (
	// contentsMax is how many calls that carry contents or lists of files are under way. Each has about
	// 1 MiB, and holds it until its client has read the answer. Namespaces share them as package share
	// says: one that is alone has 192.
	contentsMax = 512
	// contentsRetry is when a call that found no place may be repeated.
	contentsRetry = 250 * time.Millisecond
)

type contentsKey struct{}

// contents is the place of a call, once it has one.
type contents struct{ release func() }

// withContents lets calls that carry contents of files take a place, which they have until their
// answer is written.
func withContents(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case rotav1connect.FileServiceReadFileProcedure, rotav1connect.FileServiceWriteFileProcedure, rotav1connect.FileServiceListFilesProcedure:
			c := &contents{release: func() {}}
			defer func() { c.release() }()
			r = r.WithContext(context.WithValue(r.Context(), contentsKey{}, c))
		}
		next.ServeHTTP(w, r)
	})
}

// takeContents takes the place that the call needs, if it needs one; the failure says that there is
// none for the namespace.
func (s *Server) takeContents(ctx context.Context, namespace string) *failure {
	c, ok := ctx.Value(contentsKey{}).(*contents)
	if !ok {
		return nil
	}
	release, ok := s.contents.Take(namespace)
	if !ok {
		f := failed(connect.CodeResourceExhausted, "OVERLOADED",
			"this server reads, writes and lists as many files of namespace %s at once as it has room for; nothing was done: try again after the delay, have fewer calls under way, or use another server", namespace)
		f.retry = contentsRetry
		return f
	}
	c.release = release
	return nil
}
