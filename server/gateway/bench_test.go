package gateway

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"testing"

	rotav1 "rota/api/gen/rota/v1"
)

// quick is an engine that answers a stream of events at once.
func quick(b *testing.B) *httptest.Server {
	event := []byte(`data: {"id":"x","object":"chat.completion.chunk","created":1,"model":"policy","choices":[{"index":0,"delta":{"content":"word "},"finish_reason":null}]}` + "\n\n")
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		for range 16 {
			w.Write(event)
			w.(http.Flusher).Flush()
		}
		io.WriteString(w, `data: {"choices":[{"index":0,"delta":{},"finish_reason":"length"}]}`+"\n\ndata: [DONE]\n\n")
	}))
	b.Cleanup(s.Close)
	return s
}

func load(b *testing.B, addr string) {
	body := []byte(`{"model":"policy","messages":[{"role":"user","content":"hello"}],"stream":true}`)
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1024}}
	b.Cleanup(client.CloseIdleConnections)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			req, _ := http.NewRequest(http.MethodPost, addr+"/v1/chat/completions", bytes.NewReader(body))
			req.Header.Set("Content-Type", "application/json")
			req.Header.Set(trajectoryHeader, "7")
			resp, err := client.Do(req)
			if err != nil {
				b.Error(err)
				return
			}
			if n, err := io.Copy(io.Discard, resp.Body); err != nil || n < 1000 {
				b.Error(n, err)
			}
			resp.Body.Close()
		}
	})
}

// BenchmarkGateway and BenchmarkReverseProxy pass on the same streams.
func BenchmarkGateway(b *testing.B) {
	engine := quick(b)
	c := newCluster(b)
	c.tell(&rotav1.WatchRoutesResponse{Workers: []*rotav1.Worker{{
		Spec:  &rotav1.WorkerSpec{Name: "w1", Policy: "policy", Url: engine.URL, Dialect: dialectVLLM},
		State: rotav1.WorkerState_WORKER_STATE_UP,
	}}})
	c.route(7, "w1", 3)
	g := start(b, c, nil)
	until(b, "routes", func() bool { _, _, ready := g.table.counts(); return ready })
	load(b, "http://"+g.Addr())
}

func BenchmarkReverseProxy(b *testing.B) {
	engine := quick(b)
	to, err := url.Parse(engine.URL)
	if err != nil {
		b.Fatal(err)
	}
	proxy := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(to) },
		Transport:     &http.Transport{MaxIdleConns: 1024, MaxIdleConnsPerHost: 1024},
		FlushInterval: -1,
	})
	b.Cleanup(proxy.Close)
	load(b, proxy.URL)
}

// BenchmarkEvent is the work for one token.
func BenchmarkEvent(b *testing.B) {
	ev := []byte(`data: {"id":"x","object":"chat.completion.chunk","created":1,"model":"policy","choices":[{"index":0,"delta":{"content":"word "},"finish_reason":null}],"usage":{"prompt_tokens":9,"total_tokens":12,"completion_tokens":3}}` + "\n\n")
	body, err := parseBody([]byte(`{"messages":[],"stream":true}`), chat)
	if err != nil {
		b.Fatal(err)
	}
	g := generation{b: body}
	g.at(vLLM)
	var out []byte
	b.ReportAllocs()
	for b.Loop() {
		if out, err = g.add(out[:0], ev); err != nil {
			b.Fatal(err)
		}
		g.text = g.text[:0]
	}
}
