package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"rota/api/client"
	"rota/api/httpx"
	"rota/api/pki"
	"rota/jepsen/hostile"
)

// wire sends bytes of one's own making, which no client library would.
type wire struct {
	http    *http.Client
	servers []string
	api     *client.Client // for what is asked politely
}

func newWire(t hostile.Target) (*wire, error) {
	conf, err := pki.ClientConfig(t.Files, pki.RoleServer)
	if err != nil {
		return nil, err
	}
	api, err := client.New(client.Config{Addrs: t.Servers, TLS: conf})
	return &wire{http: httpx.NewClient(conf), servers: t.Servers, api: api}, err
}

const (
	protocol = "application/proto"
	text     = "application/json"
)

// answerTimeout is how long a server may take to refuse.
const answerTimeout = 10 * time.Second

// request is one that a server has to stand.
type request struct {
	kind   string
	path   string // SERVICE/METHOD in rota.v1, or a whole path
	format string // of the body; empty: text
	zipped bool
	body   []byte
	// may are the codes of Connect that are no harm. Besides, no answer at all is none.
	may []string
}

// send sends a request to the server whose turn it is, and holds the answer against what
// it may be.
func (in *intruder) send(ctx context.Context, n int, r request) (answer string) {
	in.tried(r.kind)
	code, answer := in.wire.post(ctx, in.Servers[n%len(in.Servers)], r)
	if code != noAnswer && !slices.Contains(r.may, code) {
		in.achieved("%s: %s was answered %s %.200s", r.kind, r.path, code, answer)
	}
	return answer
}

const noAnswer = "no answer"

// overload are answers of a server that has no room or no leader just then.
var overload = []string{"resource_exhausted", "unavailable", "deadline_exceeded", "canceled"}

func (w *wire) post(ctx context.Context, server string, r request) (code, answer string) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	path := r.path
	if !strings.HasPrefix(path, "/") {
		path = "/rota.v1." + path
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, httpx.BaseURL(server, true)+path, bytes.NewReader(r.body))
	if err != nil {
		return noAnswer, err.Error()
	}
	req.Header.Set("Content-Type", text)
	if r.format != "" {
		req.Header.Set("Content-Type", r.format)
	}
	if r.zipped {
		req.Header.Set("Content-Encoding", "gzip")
	}
	resp, err := w.http.Do(req)
	if err != nil {
		return noAnswer, err.Error()
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, 1<<16))
	switch {
	case err != nil:
		return noAnswer, err.Error()
	case resp.StatusCode == http.StatusOK:
		return "ok", string(raw)
	}
	var refusal struct{ Code string }
	if json.Unmarshal(raw, &refusal) != nil || refusal.Code == "" {
		return fmt.Sprintf("http %d", resp.StatusCode), string(raw)
	}
	return refusal.Code, string(raw)
}

// zip compresses as well as it gets.
func zip(body []byte) []byte {
	var out bytes.Buffer
	w, _ := gzip.NewWriterLevel(&out, gzip.BestCompression)
	_, _ = w.Write(body) // a buffer takes everything
	_ = w.Close()
	return out.Bytes()
}
