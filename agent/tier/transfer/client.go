package transfer

import (
	"crypto/tls"
	"net"
	"net/http"
	"time"
)

const (
	dialTimeout      = 3 * time.Second
	handshakeTimeout = 5 * time.Second
	idleTimeout      = 30 * time.Second
)

// NewClient returns a client for pulls: over TLS with conf, or in plain text without. It
// speaks HTTP/1.1: one value after the other on a connection of its own needs no frames and
// no flow control but TCP's. It never follows redirects and uses no proxy. Use
// CloseIdleConnections when done.
func NewClient(conf *tls.Config) *http.Client {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	if conf != nil {
		conf = conf.Clone()
		conf.NextProtos = []string{"http/1.1"}
	}
	return &http.Client{
		Transport: &http.Transport{
			Protocols:           protocols,
			TLSClientConfig:     conf,
			DialContext:         (&net.Dialer{Timeout: dialTimeout, KeepAlive: 15 * time.Second}).DialContext,
			TLSHandshakeTimeout: handshakeTimeout,
			IdleConnTimeout:     idleTimeout,
			DisableCompression:  true, // KV caches do not compress
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}
