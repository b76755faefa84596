package intake

import (
	"context"
	"net/http"
	"strings"

	"connectrpc.com/connect"
)

const (
	// ExpansionMax is how many times the limit on its bytes a request may take in
	// memory, its buffers among it.
	ExpansionMax = 16
	// streamBytesMax is the largest request of a stream. What a stream was asked
	// for lives as long as the stream, outside of the budget.
	streamBytesMax = 512 << 10
)

// Limits bound the requests of one kind.
type Limits struct {
	// MessageBytes is the largest message, as it is sent and uncompressed.
	MessageBytes int
	// Budget is what all requests of the kind share.
	Budget *Budget
	// Sender names who sent a request, so that its large requests are refused for a while
	// if it keeps sending such that have to be refused; empty: that is not looked at.
	// Optional.
	Sender func(context.Context) string
}

// Handler lets requests through to next whose messages are within the limits. Of
// procedures that are not compiled in, it reads nothing.
func Handler(next http.Handler, limits Limits) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		m := methodOf(r.URL.Path)
		if m == nil || r.Body == nil || r.Body == http.NoBody {
			next.ServeHTTP(w, r)
			return
		}
		s := &share{budget: limits.Budget, max: min(ExpansionMax*int64(limits.MessageBytes), limits.Budget.largest())}
		if limits.Sender != nil {
			s.sender = limits.Sender(r.Context())
		}
		defer s.end()
		b := newBody(w, r, m, s, limits.MessageBytes)
		r = r.WithContext(context.WithValue(r.Context(), shareKey{}, s))
		r.Body = b
		next.ServeHTTP(w, r)
	})
}

// shareKey is the key of a request's *share in its context.
type shareKey struct{}

// ForHandler makes streams give back their share once their request is decoded, and finds
// out whose requests the handlers refuse. It comes before other interceptors.
func ForHandler() connect.HandlerOption { return connect.WithInterceptors(interceptor{}) }

type interceptor struct{}

// WrapUnary is around unary calls, which hold their share to the end.
func (interceptor) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		resp, err := next(ctx, req)
		if s, ok := ctx.Value(shareKey{}).(*share); ok {
			s.blameless = err == nil || connect.CodeOf(err) != connect.CodeInvalidArgument
		}
		return resp, err
	}
}

// WrapStreamingClient is for clients.
func (interceptor) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

// WrapStreamingHandler is around streams.
func (interceptor) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) error {
		if s, ok := ctx.Value(shareKey{}).(*share); ok {
			conn = receiver{conn, s}
		}
		return next(ctx, conn)
	}
}

// receiver is a stream that holds its share only while it receives.
type receiver struct {
	connect.StreamingHandlerConn
	share *share
}

// Receive receives a message.
func (r receiver) Receive(m any) error {
	defer r.share.end()
	err := r.StreamingHandlerConn.Receive(m)
	r.share.blameless = err == nil
	return err
}

// Release gives back the share of a request before its handler returns. It is for handlers that
// wait for others, and account for the memory of the request themselves.
func Release(ctx context.Context) {
	if s, ok := ctx.Value(shareKey{}).(*share); ok {
		s.blameless = true
		s.end()
	}
}

// format is how a request's messages are encoded.
type format struct {
	json, enveloped, gzip bool
}

// formatOf reads it from a request's header. It takes gzip off a unary request's
// header, because its body arrives at the handler expanded.
func formatOf(h http.Header) (f format) {
	content := h.Get("Content-Type")
	f.json = strings.Contains(content, "json")
	encoding := "Content-Encoding"
	switch {
	case strings.HasPrefix(content, "application/grpc"):
		f.enveloped, encoding = true, "Grpc-Encoding"
	case strings.HasPrefix(content, "application/connect+"):
		f.enveloped, encoding = true, "Connect-Content-Encoding"
	}
	f.gzip = h.Get(encoding) == "gzip"
	if f.gzip && !f.enveloped {
		h.Del(encoding)
	}
	return f
}
