package server

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"rota/api/pki"
)

// TestPagesOfOtherSitesAreTurnedAway: a browser gets in by the names of this machine only, and
// other programs by all that no other site can have.
func TestPagesOfOtherSitesAreTurnedAway(t *testing.T) {
	passed := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	plain, secure := &Server{cfg: Config{Advertise: "node.example.com:7400"}}, &Server{cfg: Config{TLS: pki.Files{Cert: "c", Key: "k", CA: "ca"}}}
	for _, test := range []struct {
		server              *Server
		host, header, value string
		want                int
	}{
		{plain, "evil.example:7400", "Origin", "http://evil.example:7400", http.StatusForbidden},
		{plain, "evil.example", "User-Agent", "Mozilla/5.0", http.StatusForbidden},
		{plain, "localhost.evil.example:7400", "Sec-Fetch-Site", "same-origin", http.StatusForbidden},
		{plain, "192.0.2.1:7400", "Origin", "null", http.StatusForbidden},
		{plain, "LOCALHOST:7400", "User-Agent", "Mozilla/5.0", http.StatusOK},
		{plain, "rota.localhost:7400", "Origin", "http://rota.localhost:7400", http.StatusOK},
		{plain, "127.0.0.1", "User-Agent", "Mozilla/5.0", http.StatusOK},
		{plain, "[::1]:7400", "User-Agent", "Mozilla/5.0", http.StatusOK},
		{plain, "server-1:7400", "User-Agent", "connect-go", http.StatusOK},
		{plain, "node.example.com:7400", "User-Agent", "connect-go", http.StatusOK},
		{plain, "192.0.2.1:7400", "User-Agent", "connect-go", http.StatusOK},
		{plain, "49983-t7.evil.example:7400", "User-Agent", "connect-go", http.StatusForbidden},
		{plain, "evil.example.", "User-Agent", "connect-go", http.StatusForbidden},
		{secure, "server-1:7400", "User-Agent", "Mozilla/5.0", http.StatusOK},
	} {
		r := httptest.NewRequest(http.MethodPost, "/rota.v1.ActionService/SubmitActions", http.NoBody)
		r.Host = test.host
		r.Header.Set(test.header, test.value)
		w := httptest.NewRecorder()
		test.server.refuseRebound(passed).ServeHTTP(w, r)
		if w.Code != test.want {
			t.Errorf("%s with %s: %s gets status %d, want %d", test.host, test.header, test.value, w.Code, test.want)
		}
	}
}
