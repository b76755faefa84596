package server

import (
	"crypto/tls"
	"net/http"
	"sync"

	"connectrpc.com/connect"

	"rota/api/codec"
	"rota/api/gen/peer/v1/peerv1connect"
	"rota/api/gen/rota/v1/rotav1connect"
	"rota/api/httpx"
	"rota/api/pki"
)

// outputBytesMax is the largest message that is read of an agent's output.
const outputBytesMax = 1 << 20

// dialer makes clients of other servers and of agents. Each insists on the role
// of who answers.
type dialer struct {
	tls     bool
	raft    *tls.Config // nil without TLS
	servers *http.Client
	agents  *http.Client
	peers   *sync.Map // address to client
}

func newDialer(f pki.Files) (dialer, error) {
	d := dialer{tls: f.Enabled(), peers: new(sync.Map)}
	if !d.tls {
		d.servers, d.agents = httpx.NewClient(nil), httpx.NewClient(nil)
		return d, nil
	}
	var err error
	if d.raft, err = pki.ClientConfig(f, pki.RoleServer); err != nil {
		return d, err
	}
	agents, err := pki.ClientConfig(f, pki.RoleAgent)
	if err != nil {
		return d, err
	}
	d.servers, d.agents = httpx.NewClient(d.raft), httpx.NewClient(agents)
	return d, nil
}

// serverTLS is what the port asks of every client; nil without TLS.
func serverTLS(f pki.Files) (*tls.Config, error) {
	if !f.Enabled() {
		return nil, nil
	}
	return pki.ServerConfig(f, pki.RoleServer, pki.RoleAgent, pki.RoleOperator, pki.RoleClient)
}

func (d dialer) peer(addr string) peerv1connect.PeerServiceClient {
	if c, ok := d.peers.Load(addr); ok {
		return c.(peerv1connect.PeerServiceClient)
	}
	c, _ := d.peers.LoadOrStore(addr, peerv1connect.NewPeerServiceClient(d.servers, httpx.BaseURL(addr, d.tls),
		codec.ForClient(), connect.WithReadMaxBytes(peerBytesMax)))
	return c.(peerv1connect.PeerServiceClient)
}

func (d dialer) operator(addr string) rotav1connect.OperatorServiceClient {
	return rotav1connect.NewOperatorServiceClient(d.servers, httpx.BaseURL(addr, d.tls))
}

// output bounds what an agent may answer: one message is a chunk of output.
func (d dialer) output(addr string) rotav1connect.OutputServiceClient {
	return rotav1connect.NewOutputServiceClient(d.agents, httpx.BaseURL(addr, d.tls),
		codec.ForClient(), connect.WithReadMaxBytes(outputBytesMax))
}

// files bounds what an agent may answer: one message is a chunk of a file. Nothing is
// compressed: it would take longer than the way.
func (d dialer) files(addr string) rotav1connect.FileServiceClient {
	return rotav1connect.NewFileServiceClient(d.agents, httpx.BaseURL(addr, d.tls), codec.ForClient(),
		connect.WithReadMaxBytes(outputBytesMax+64<<10), connect.WithAcceptCompression("gzip", nil, nil))
}

func (d dialer) close() {
	d.servers.CloseIdleConnections()
	d.agents.CloseIdleConnections()
}
