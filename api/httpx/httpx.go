package httpx

import (
	"crypto/tls"
	"net"
	"net/http"
	"time"
)

// A connection that has been silent for pingAfter is pinged, and is closed if
// no answer comes within pingTimeout.
const (
	pingAfter   = 3 * time.Second
	pingTimeout = 2 * time.Second
)

// IndexHeader says which state a server has looked at when it calls an agent: the index of the
// newest entry in it.
const IndexHeader = "Rota-Index"

// SnapshotHeader names the snapshot that the files of a trajectory begin with, when a server calls the
// agent of its node.
const SnapshotHeader = "Rota-Snapshot"

// ReplicaPath is where agents pass calls on to attempts that listen:
// {action}/{attempt}/call/{path}, and {action}/{attempt}/ready?probe={path}. What an agent says in
// its own name has ReplicaHeader, with one of the values below.
const (
	ReplicaPath   = "/rota.replica/"
	ReplicaHeader = "Rota-Replica-Error"
	// ReplicaGone: there is no such attempt here any more.
	ReplicaGone = "gone"
	// ReplicaFailed: it did not answer.
	ReplicaFailed = "failed"
	// ReplicaStarting: it does not listen yet.
	ReplicaStarting = "starting"
	// ReplicaBusy: the agent has too many calls.
	ReplicaBusy = "busy"
)

const (
	dialTimeout      = 3 * time.Second
	handshakeTimeout = 5 * time.Second
	// headerTimeout bounds how long an HTTP/1.1 client may take for a request's
	// header.
	headerTimeout = 10 * time.Second
	// idleTimeout closes connections without a stream.
	idleTimeout = 2 * time.Minute

	headerBytesMax = 64 << 10
	// streamsMax is the number of concurrent streams on one connection: requests
	// that wait for a commit and watches that wait for an event are cheap.
	streamsMax = 4096
	// What a peer may send ahead of the reader, on each stream and on the connection.
	// Handlers read a request at once, so more would serve only those who send what
	// nothing reads.
	streamBufferBytes     = 1 << 20
	connectionBufferBytes = 4 << 20
)

// NewClient returns a client for one or many peers that speaks HTTP/2 only:
// over TLS with tlsConf, or without it in plain text from the first byte
// (h2c with prior knowledge). It never follows redirects, uses no proxy and has
// no overall timeout: give each call a context. Use CloseIdleConnections when
// done.
func NewClient(tlsConf *tls.Config) *http.Client {
	protocols := new(http.Protocols)
	if tlsConf == nil {
		protocols.SetUnencryptedHTTP2(true)
	} else {
		protocols.SetHTTP2(true)
		// The transport adds its own ALPN names.
		tlsConf = tlsConf.Clone()
		tlsConf.NextProtos = nil
	}
	return &http.Client{
		Transport: &http.Transport{
			Protocols:           protocols,
			TLSClientConfig:     tlsConf,
			DialContext:         (&net.Dialer{Timeout: dialTimeout, KeepAlive: 15 * time.Second}).DialContext,
			TLSHandshakeTimeout: handshakeTimeout,
			IdleConnTimeout:     idleTimeout,
			DisableCompression:  true, // Connect negotiates its own
			HTTP2:               http2Config(),
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// BaseURL is the URL of the peer at host:port.
func BaseURL(addr string, withTLS bool) string {
	if withTLS {
		return "https://" + addr
	}
	return "http://" + addr
}

// NewServer returns a server for HTTP/1.1 and HTTP/2, with TLS if its listener
// yields TLS connections and in plain text otherwise. Requests have no time
// limit, since streams have none; handlers bound what they read.
func NewServer(h http.Handler) *http.Server {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true)
	return &http.Server{
		Handler:           h,
		Protocols:         protocols,
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    headerBytesMax,
		HTTP2:             http2Config(),
	}
}

func http2Config() *http.HTTP2Config {
	return &http.HTTP2Config{
		MaxConcurrentStreams:          streamsMax,
		MaxReceiveBufferPerConnection: connectionBufferBytes,
		MaxReceiveBufferPerStream:     streamBufferBytes,
		SendPingTimeout:               pingAfter,
		PingTimeout:                   pingTimeout,
	}
}
