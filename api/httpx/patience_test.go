package httpx_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"rota/api/httpx"
)

// shortly is how long clients of these tests may read nothing.
const shortly = 300 * time.Millisecond

// narrowBytes is more than a segment on loopback: with less, TCP itself makes pauses.
const narrowBytes = 128 << 10

// narrow are connections whose buffers in the kernel are small, so that it matters soon whether a
// client reads.
type narrow struct{ net.Listener }

func (n narrow) Accept() (net.Conn, error) {
	c, err := n.Listener.Accept()
	if err == nil {
		_ = c.(*net.TCPConn).SetWriteBuffer(narrowBytes)
	}
	return c, err
}

// dialNarrow is the same at a client.
func dialNarrow(ctx context.Context, _, addr string) (net.Conn, error) {
	c, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	if err == nil {
		_ = c.(*net.TCPConn).SetReadBuffer(narrowBytes)
	}
	return c, err
}

// impatient is a server whose clients must read.
type impatient struct {
	addr string
	// running and ended are handlers, over are answers that were ended.
	running, ended, over atomic.Int64
}

// serveImpatient answers /small with the address of the client, and anything else by h.
func serveImpatient(t *testing.T, h http.HandlerFunc) *impatient {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &impatient{addr: l.Addr().String()}
	srv := httpx.Patience{Max: shortly, Over: func(*http.Request) { s.over.Add(1) }}.NewServer(
		http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/small" {
				fmt.Fprint(w, r.RemoteAddr)
				return
			}
			s.running.Add(1)
			defer s.ended.Add(1)
			h(w, r)
		}))
	srv.HTTP2.SendPingTimeout = time.Minute // a client that answers no pings is given up as well, and sooner
	go srv.Serve(narrow{l})
	t.Cleanup(func() { srv.Close() })
	return s
}

// protocols are clients of both, each with one connection.
func protocols(t *testing.T) map[string]*http.Client {
	http1 := &http.Client{Transport: &http.Transport{DialContext: dialNarrow, MaxConnsPerHost: 1, ReadBufferSize: 4 << 10}}
	http2 := httpx.NewRelayClient(nil)
	http2.Transport.(*http.Transport).DialContext = dialNarrow
	t.Cleanup(http1.CloseIdleConnections)
	t.Cleanup(http2.CloseIdleConnections)
	return map[string]*http.Client{"HTTP/1.1": http1, "HTTP/2.0": http2}
}

// ask sends a request and leaves its answer to be read.
func ask(t *testing.T, c *http.Client, s *impatient, proto, path string) io.ReadCloser {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+s.addr+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	if resp.Proto != proto {
		t.Fatalf("it speaks %s", resp.Proto)
	}
	return resp.Body
}

func eventually(t *testing.T, what string, met func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !met(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}

// writing reports whether a goroutine writes an answer, or has yet to write the end of one.
func writing() bool {
	stacks := make([]byte, 4<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	return bytes.Contains(stacks, []byte("httpx.(*timed)")) || bytes.Contains(stacks, []byte("writeDataFromHandler"))
}

// once writes an answer of 64 MiB, and forever a stream of small messages, until that fails.
func once(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 64<<20)) }

func forever(w http.ResponseWriter, _ *http.Request) {
	for {
		if _, err := w.Write(make([]byte, 100)); err != nil {
			return
		}
		w.(http.Flusher).Flush()
	}
}

// TestAnswersThatAreNotReadEnd: the goroutines of both kinds end, and other requests go on.
func TestAnswersThatAreNotReadEnd(t *testing.T) {
	for what, h := range map[string]http.HandlerFunc{"an answer": once, "a stream": forever} {
		for proto, c := range protocols(t) {
			t.Run(what+" over "+proto, func(t *testing.T) {
				s := serveImpatient(t, h)
				from, _ := io.ReadAll(ask(t, c, s, proto, "/small"))
				began := time.Now()
				for range 1 + 2*strings.Count(proto, "2.0") { // HTTP/1.1 has one at once
					ask(t, c, s, proto, "/")
				}
				eventually(t, "a handler waits for its client", func() bool { return s.running.Load() > 0 && writing() })
				if proto == "HTTP/2.0" {
					if again, err := io.ReadAll(ask(t, c, s, proto, "/small")); err != nil || string(again) != string(from) {
						t.Errorf("beside them, another answer is %q, %v: the first one was %q", again, err, from)
					}
				}
				eventually(t, "the handlers end", func() bool { return s.running.Load() == s.ended.Load() && !writing() })
				if took := time.Since(began); took < shortly {
					t.Errorf("they end after %v", took)
				}
				if s.over.Load() != s.running.Load() {
					t.Errorf("%d handlers, %d of them were ended", s.running.Load(), s.over.Load())
				}
				if proto == "HTTP/2.0" {
					if again, err := io.ReadAll(ask(t, c, s, proto, "/small")); err != nil || string(again) != string(from) {
						t.Errorf("after them, another answer is %q, %v: the first one was %q", again, err, from)
					}
				}
			})
		}
	}
}

// TestSlowReadersGetEverything as long as they read on.
func TestSlowReadersGetEverything(t *testing.T) {
	for proto, c := range protocols(t) {
		t.Run(proto, func(t *testing.T) {
			const size = 4 << 20
			s := serveImpatient(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, size)) })
			body, got, began := ask(t, c, s, proto, "/"), 0, time.Now()
			for buf := make([]byte, 64<<10); ; time.Sleep(shortly / 10) {
				n, err := io.ReadFull(body, buf)
				if got += n; err == io.EOF || err == io.ErrUnexpectedEOF && got == size {
					break
				}
				if err != nil {
					t.Fatalf("after %d bytes: %v", got, err)
				}
			}
			if got != size || s.over.Load() != 0 {
				t.Errorf("%d bytes arrived, %d answers were ended", got, s.over.Load())
			}
			if took := time.Since(began); took < 3*shortly {
				t.Errorf("it was read in %v, which shows nothing", took)
			}
		})
	}
}

// TestQuietStreamsLive: only writes have a time. A connection may be used again after one, too.
func TestQuietStreamsLive(t *testing.T) {
	for proto, c := range protocols(t) {
		t.Run(proto, func(t *testing.T) {
			s := serveImpatient(t, func(w http.ResponseWriter, _ *http.Request) {
				for range 3 {
					fmt.Fprintln(w, "message")
					w.(http.Flusher).Flush()
					time.Sleep(2 * shortly)
				}
			})
			from, _ := io.ReadAll(ask(t, c, s, proto, "/small"))
			time.Sleep(2 * shortly)
			if got, err := io.ReadAll(ask(t, c, s, proto, "/")); err != nil || string(got) != strings.Repeat("message\n", 3) {
				t.Errorf("%q, %v", got, err)
			}
			time.Sleep(2 * shortly)
			if again, err := io.ReadAll(ask(t, c, s, proto, "/small")); err != nil || string(again) != string(from) {
				t.Errorf("%q, %v: the first one was %q", again, err, from)
			}
			if s.over.Load() != 0 {
				t.Errorf("%d answers were ended", s.over.Load())
			}
		})
	}
}

// Frames of HTTP/2, and flags of them.
const (
	frameHeaders, frameSettings, frameWindow = 1, 4, 8
	endStream, endHeaders                    = 1, 4
	settingWindow                            = 4
)

func frame(kind, flags byte, stream uint32, payload []byte) []byte {
	head := binary.BigEndian.AppendUint32(nil, uint32(len(payload))<<8|uint32(kind))
	return append(binary.BigEndian.AppendUint32(append(head, flags), stream), payload...)
}

// rawHTTP2 asks for / over HTTP/2 and lets the server send so much ahead.
func rawHTTP2(t *testing.T, addr string, window uint32) net.Conn {
	t.Helper()
	c, err := dialNarrow(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	out := []byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
	out = append(out, frame(frameSettings, 0, 0, binary.BigEndian.AppendUint32([]byte{0, settingWindow}, window))...)
	if window > 0 {
		out = append(out, frame(frameWindow, 0, 0, binary.BigEndian.AppendUint32(nil, window))...)
	}
	if _, err := c.Write(append(out, request(1)...)); err != nil {
		t.Fatal(err)
	}
	return c
}

// request is GET, http, / and an authority, by the static table of HPACK.
func request(stream uint32) []byte {
	return frame(frameHeaders, endStream|endHeaders, stream, []byte{0x82, 0x86, 0x84, 0x41, 1, 'x'})
}

// TestAClientThatOnlySends reads nothing of its connection, and asks for more and more.
func TestAClientThatOnlySends(t *testing.T) {
	s := serveImpatient(t, once)
	c := rawHTTP2(t, s.addr, 1<<30)
	stream := uint32(1)
	eventually(t, "the connection is closed", func() bool {
		stream += 2
		_, err := c.Write(request(stream))
		return err != nil
	})
	eventually(t, "the handlers end", func() bool { return s.running.Load() == s.ended.Load() && !writing() })
}

// TestSmallAnswersThatAreNotTaken are written by net/http when their handlers have returned.
func TestSmallAnswersThatAreNotTaken(t *testing.T) {
	s := serveImpatient(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "small") })
	rawHTTP2(t, s.addr, 0)
	eventually(t, "the handler has returned", func() bool { return s.ended.Load() == 1 && writing() })
	eventually(t, "its goroutine ends", func() bool { return !writing() })
}

// BenchmarkPatience is one message of a stream, with and without it.
func BenchmarkPatience(b *testing.B) {
	for _, proto := range []string{"HTTP/1.1", "HTTP/2.0"} {
		for _, bare := range []bool{true, false} {
			b.Run(fmt.Sprintf("%s/bare=%v", proto, bare), func(b *testing.B) {
				done := make(chan struct{})
				h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					defer close(done)
					if u, ok := w.(interface{ Unwrap() http.ResponseWriter }); ok && bare {
						w = u.Unwrap()
					}
					message := make([]byte, 200)
					b.ReportAllocs()
					for b.Loop() {
						_, _ = w.Write(message)
						w.(http.Flusher).Flush()
					}
				})
				l, err := net.Listen("tcp", "127.0.0.1:0")
				if err != nil {
					b.Fatal(err)
				}
				srv := httpx.NewServer(h)
				go srv.Serve(l)
				defer srv.Close()
				c := http.DefaultClient
				if proto == "HTTP/2.0" {
					c = httpx.NewClient(nil)
				}
				defer c.CloseIdleConnections()
				resp, err := c.Get("http://" + l.Addr().String())
				if err != nil {
					b.Fatal(err)
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
				<-done
			})
		}
	}
}
