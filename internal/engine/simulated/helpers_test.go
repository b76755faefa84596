package simulated

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
)

// options are the defaults, with flags.
func options(t *testing.T, flags ...string) (o Options) {
	t.Helper()
	fs := pflag.NewFlagSet(t.Name(), pflag.ContinueOnError)
	o.AddTo(fs)
	if err := fs.Parse(flags); err != nil {
		t.Fatal(err)
	}
	return o
}

// api is an engine as its clients see it.
type api struct {
	t      *testing.T
	url    string
	client *http.Client
	// code is sent the exit code of the process that the engine would be.
	code chan int
	stop context.CancelFunc
}

// start starts an engine on a socket.
func start(t *testing.T, flags ...string) *api {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	a := &api{t: t, client: &http.Client{Transport: &http.Transport{}}, code: make(chan int, 1), stop: stop}
	listens := make(chan net.Addr, 1)
	go func() {
		code, err := Run(ctx, options(t, flags...), nil, func(addr net.Addr) { listens <- addr })
		if err != nil {
			t.Errorf("the engine ended with code %d: %v", code, err)
		}
		a.code <- code
	}()
	select {
	case addr := <-listens:
		a.url = "http://" + addr.String()
	case code := <-a.code:
		t.Fatalf("the engine does not start: %d", code)
	}
	t.Cleanup(func() {
		stop()
		a.client.CloseIdleConnections()
		a.ended()
	})
	a.until("/health")
	return a
}

// ended waits for the end of the engine, and returns its exit code.
func (a *api) ended() int {
	a.t.Helper()
	select {
	case code := <-a.code:
		a.code <- code
		return code
	case <-time.After(time.Minute):
		a.t.Fatal("the engine does not end")
		return 0
	}
}

// until waits until the engine answers 200 to a path.
func (a *api) until(path string) {
	a.t.Helper()
	for range 6000 {
		if status, _ := a.call("GET", path, ""); status == http.StatusOK {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	a.t.Fatalf("%s does not answer 200", path)
}

// call makes a call and returns its answer; status 0: the connection broke.
func (a *api) call(method, path, body string) (status int, text string) {
	a.t.Helper()
	req, err := http.NewRequestWithContext(a.t.Context(), method, a.url+path, strings.NewReader(body))
	if err != nil {
		a.t.Fatal(err)
	}
	resp, err := a.client.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err.Error()
	}
	return resp.StatusCode, string(raw)
}

// must makes a call that has to succeed.
func (a *api) must(method, path, body string) string {
	a.t.Helper()
	status, text := a.call(method, path, body)
	if status != http.StatusOK {
		a.t.Fatalf("%s %s answers %d: %s", method, path, status, text)
	}
	return text
}

// reply is the answer to a request, whole or in parts.
type reply struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Model   string `json:"model"`
	Mark    string `json:"system_fingerprint"`
	Choices []struct {
		Index        int             `json:"index"`
		Text         string          `json:"text"`
		FinishReason string          `json:"finish_reason"`
		StopReason   string          `json:"stop_reason"`
		TokenIDs     []uint32        `json:"token_ids"`
		Logprobs     json.RawMessage `json:"logprobs"`
		Message      said            `json:"message"`
		Delta        said            `json:"delta"`
	} `json:"choices"`
	Usage *struct {
		Prompt     int64 `json:"prompt_tokens"`
		Completion int64 `json:"completion_tokens"`
		Details    struct {
			Cached int64 `json:"cached_tokens"`
		} `json:"prompt_tokens_details"`
	} `json:"usage"`
}

type said struct {
	Role      string `json:"role"`
	Content   string `json:"content"`
	ToolCalls []struct {
		Function struct{ Name, Arguments string }
	} `json:"tool_calls"`
}

// ask makes a request that is answered at once.
func (a *api) ask(path string, request map[string]any) (r reply) {
	a.t.Helper()
	body, err := json.Marshal(request)
	if err != nil {
		a.t.Fatal(err)
	}
	text := a.must("POST", path, string(body))
	if err := json.Unmarshal([]byte(text), &r); err != nil || r.Mark != "simulated" || !strings.Contains(text, `"simulated":{`) {
		a.t.Fatalf("%v: %s", err, text)
	}
	return r
}

// streamed makes a request that is answered in parts, and returns these.
func (a *api) streamed(path string, request map[string]any) (parts []reply) {
	a.t.Helper()
	request["stream"] = true
	body, err := json.Marshal(request)
	if err != nil {
		a.t.Fatal(err)
	}
	resp, err := a.client.Post(a.url+path, "application/json", bytes.NewReader(body))
	if err != nil {
		a.t.Fatal(err)
	}
	defer resp.Body.Close()
	parts, done, err := events(resp.Body)
	if err != nil || !done {
		a.t.Fatalf("the stream ended with %v, and done: %v", err, done)
	}
	return parts
}

// events reads server-sent events to their end.
func events(r io.Reader) (parts []reply, done bool, err error) {
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		switch {
		case lines.Text() == "":
		case !ok || done:
			return parts, done, fmt.Errorf("a line %q", lines.Text())
		case data == "[DONE]":
			done = true
		default:
			var part reply
			if err := json.Unmarshal([]byte(data), &part); err != nil {
				return parts, done, err
			}
			if part.Mark != "simulated" {
				return parts, done, fmt.Errorf("not marked as simulated: %s", data)
			}
			parts = append(parts, part)
		}
	}
	return parts, done, lines.Err()
}

// joined is the text of an answer in parts, and why it ended.
func joined(parts []reply) (text, reason string) {
	for _, p := range parts {
		for _, c := range p.Choices {
			text += c.Text + c.Delta.Content
			for _, call := range c.Delta.ToolCalls {
				text += call.Function.Arguments
			}
			reason += c.FinishReason
		}
	}
	return text, reason
}
