package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"testing"
	"time"
)

// TestEngineSimulateServesUntilItIsStopped: it prints its address, answers there, and ends in order.
func TestEngineSimulateServesUntilItIsStopped(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	r, w := io.Pipe()
	code := make(chan int, 1)
	go func() {
		code <- run(ctx, []string{"engine", "simulate", "--step", "0s", "--model", "policy", "-o", "json"}, w, io.Discard)
		w.Close()
	}()
	line, err := bufio.NewReader(r).ReadBytes('\n')
	var ready simulatedReady
	if err == nil {
		err = json.Unmarshal(line, &ready)
	}
	if err != nil || !ready.Simulated || ready.Model != "policy" || ready.Dialect != "vllm" {
		t.Fatalf("%v: it prints %s", err, line)
	}
	go func() { _, _ = io.Copy(io.Discard, r) }()
	resp, err := http.Get(ready.URL + "/v1/models")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Errorf("/v1/models answers %d", resp.StatusCode)
	}
	stop()
	select {
	case c := <-code:
		if c != exitOK {
			t.Errorf("it ended with code %d", c)
		}
	case <-time.After(time.Minute):
		t.Error("it does not end")
	}
}
