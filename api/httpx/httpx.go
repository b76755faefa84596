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
	// serverStreamBytes and serverConnectionBytes are what a client may send ahead of the handlers,
	// on each stream and on the connection. Handlers read a request at once, so more would serve
	// only those who send what nothing reads.
	serverStreamBytes     = 1 << 20
	serverConnectionBytes = 4 << 20
	// clientStreamBytes is what a server may send ahead of the reader of an answer. All streams of a
	// connection fit into its window: HTTP/2 bounds that to 2 GiB.
	clientStreamBytes = 448 << 10
	// relayStreamBytes is the same where others decide when an answer is read.
	relayStreamBytes = 64 << 10
)

// NewClient returns a client for one or many peers that speaks HTTP/2 only:
// over TLS with tlsConf, or without it in plain text from the first byte
// (h2c with prior knowledge). It never follows redirects, uses no proxy and has
// no overall timeout: give each call a context. Use CloseIdleConnections when
// done.
func NewClient(tlsConf *tls.Config) *http.Client { return newClient(tlsConf, clientStreamBytes) }

// NewRelayClient is NewClient for answers that are passed on at the pace of somebody else, who may read
// nothing for hours. It buffers little of each.
func NewRelayClient(tlsConf *tls.Config) *http.Client { return newClient(tlsConf, relayStreamBytes) }

// newClient makes a client whose connections have room for what streamBytes let each stream send ahead.
// With less, a few streams that are not read would stop the answers to all others.
func newClient(tlsConf *tls.Config, streamBytes int) *http.Client {
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
			HTTP2:               http2Config(streamBytes, streamsMax*streamBytes),
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
// limit, since streams have none; handlers bound what they read. Clients that do
// not read their answers are given up: see Patience.
func NewServer(h http.Handler) *http.Server { return Patience{}.NewServer(h) }

func newServer(h http.Handler) *http.Server {
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
		HTTP2:             http2Config(serverStreamBytes, serverConnectionBytes),
	}
}

func http2Config(streamBytes, connectionBytes int) *http.HTTP2Config {
	return &http.HTTP2Config{
		MaxConcurrentStreams:          streamsMax,
		MaxReceiveBufferPerConnection: connectionBytes,
		MaxReceiveBufferPerStream:     streamBytes,
		SendPingTimeout:               pingAfter,
		PingTimeout:                   pingTimeout,
	}
}
