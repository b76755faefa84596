package httpx_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"rota/api/httpx"
)

// TestCallsInTheProcess: streams arrive as they are written, and a handler that gives up or a
// caller that leaves ends the other.
func TestCallsInTheProcess(t *testing.T) {
	left := make(chan struct{})
	api := http.NewServeMux()
	api.HandleFunc("/stream", func(w http.ResponseWriter, r *http.Request) {
		defer close(left)
		for i := 0; ; i++ {
			if _, err := fmt.Fprintln(w, i, r.RemoteAddr); err != nil {
				return
			}
		}
	})
	api.HandleFunc("/panic", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("half"))
		panic("given up")
	})
	api.HandleFunc("/token", func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.Header.Get("Authorization")) })
	c := httpx.InProcess{API: api, For: httptest.NewRequest(http.MethodGet, "/ui/", nil), Authorization: "Bearer of the page"}
	c.For.Header.Set("Authorization", "Basic of the page")
	do := func(path string) *http.Response {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://this.server"+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := c.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		return resp
	}
	resp := do("/stream")
	var n int
	var from string
	if _, err := fmt.Fscanln(resp.Body, &n, &from); err != nil || from != c.For.RemoteAddr {
		t.Errorf("%d %q %v", n, from, err)
	}
	resp.Body.Close()
	<-left
	token := do("/token")
	defer token.Body.Close()
	if got, err := io.ReadAll(token.Body); err != nil || string(got) != "Bearer of the page" {
		t.Errorf("the call has the token %q, %v", got, err)
	}
	resp = do("/panic")
	defer resp.Body.Close()
	if got, err := io.ReadAll(resp.Body); err == nil || string(got) != "half" {
		t.Errorf("%q %v", got, err)
	}
	if resp := do("/nothing"); resp.StatusCode != http.StatusNotFound {
		t.Errorf("status %d", resp.StatusCode)
	}
}
