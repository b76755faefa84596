package httpx

import (
	"io"
	"net/http"
	"sync"
)

// InProcess calls the API of a server in the same process, on behalf of a request for something
// else: with its certificate and its address. It implements connect.HTTPClient.
type InProcess struct {
	API http.Handler
	// For is the request on whose behalf it calls.
	For *http.Request
	// Authorization is the header of that name; empty: none.
	Authorization string
}

// Do answers a call when the handler has begun its answer; the body follows as it is written.
func (c InProcess) Do(call *http.Request) (*http.Response, error) {
	r := call.Clone(call.Context())
	r.TLS, r.RemoteAddr, r.RequestURI = c.For.TLS, c.For.RemoteAddr, call.URL.RequestURI()
	if r.Header.Del("Authorization"); c.Authorization != "" {
		r.Header.Set("Authorization", c.Authorization)
	}
	r.Proto, r.ProtoMajor, r.ProtoMinor = "HTTP/2.0", 2, 0
	if r.Body == nil {
		r.Body = http.NoBody
	}
	body, out := io.Pipe()
	w := &answer{header: http.Header{}, begun: make(chan struct{}), out: out}
	go func() {
		defer func() { _ = out.CloseWithError(endOf(recover())) }()
		defer w.begin(http.StatusOK)
		c.API.ServeHTTP(w, r)
	}()
	select {
	case <-w.begun:
	case <-call.Context().Done():
		_ = body.Close()
		return nil, call.Context().Err()
	}
	return &http.Response{
		StatusCode: w.status, Status: http.StatusText(w.status), Header: w.sent, Body: body, Request: call,
		Proto: r.Proto, ProtoMajor: 2, ContentLength: -1,
	}, nil
}

// endOf is how the body of an answer ends: at its end, or in the middle if the handler gave up.
func endOf(panicked any) error {
	if panicked != nil {
		return io.ErrUnexpectedEOF
	}
	return io.EOF
}

// answer is the http.ResponseWriter of a call in the same process.
type answer struct {
	header http.Header
	once   sync.Once
	// begun is closed when status and sent are set.
	begun  chan struct{}
	status int
	sent   http.Header
	out    *io.PipeWriter
}

func (a *answer) Header() http.Header { return a.header }

func (a *answer) WriteHeader(status int) { a.begin(status) }

func (a *answer) Write(p []byte) (int, error) {
	a.begin(http.StatusOK)
	return a.out.Write(p)
}

// Flush sends the header; what is written goes out at once.
func (a *answer) Flush() { a.begin(http.StatusOK) }

func (a *answer) begin(status int) {
	a.once.Do(func() {
		a.status, a.sent = status, a.header.Clone()
		close(a.begun)
	})
}
