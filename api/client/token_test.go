package client

import (
	"errors"
	"net/http"
	"testing"
)

// TestATokenIsNotSentInClear: without TLS it is for this machine only.
func TestATokenIsNotSentInClear(t *testing.T) {
	token := "rota_x"
	for _, test := range []struct {
		scheme, addr string
		sent         bool
	}{
		{"https", "10.0.0.1:7400", true}, {"http", "127.0.0.1:7400", true}, {"http", "[::1]:7400", true}, {"http", "localhost:7400", true},
		{"http", "10.0.0.1:7400", false}, {"http", "server:7400", false},
	} {
		s := &servers{scheme: test.scheme, token: func() (string, error) { return token, nil }}
		r := &http.Request{Header: http.Header{}}
		err := s.identify(r, test.addr)
		if test.sent != (err == nil) || test.sent != (r.Header.Get("Authorization") == "Bearer rota_x") || !test.sent && !errors.Is(err, errTokenInClear) {
			t.Errorf("%s://%s: %v", test.scheme, test.addr, err)
		}
	}
	if _, err := New(Config{Addrs: []string{"127.0.0.1:1", "10.0.0.1:7400"}, Token: func() (string, error) { return token, nil }}); !errors.Is(err, errTokenInClear) {
		t.Errorf("a client that would send its token in clear is made: %v", err)
	}
	if c, err := New(Config{Addrs: []string{"10.0.0.1:7400"}, Token: func() (string, error) { return "", nil }}); err != nil {
		t.Errorf("a client without a token: %v", err)
	} else {
		c.Close()
	}
}
