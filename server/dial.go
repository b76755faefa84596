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
	// following is for the output of agents, which clients read at their own pace.
	following *http.Client
	// Clients by address: one for each server and agent, not for each call.
	peers   *byAddress[peerv1connect.PeerServiceClient]
	outputs *byAddress[rotav1connect.OutputServiceClient]
	trees   *byAddress[rotav1connect.FileServiceClient]
	inputs  *byAddress[rotav1connect.StreamServiceClient]
	meters  *byAddress[rotav1connect.UsageServiceClient]
}

// byAddress keeps what was made for an address.
type byAddress[C any] struct {
	made sync.Map
	make func(addr string) C
}

func (b *byAddress[C]) of(addr string) C {
	c, ok := b.made.Load(addr)
	if !ok {
		c, _ = b.made.LoadOrStore(addr, b.make(addr))
	}
	return c.(C)
}

func newDialer(f pki.Files) (dialer, error) {
	d := dialer{tls: f.Enabled()}
	var agents *tls.Config
	if d.tls {
		var err error
		if d.raft, err = pki.ClientConfig(f, pki.RoleServer); err != nil {
			return d, err
		}
		if agents, err = pki.ClientConfig(f, pki.RoleAgent); err != nil {
			return d, err
		}
	}
	d.servers, d.agents, d.following = httpx.NewClient(d.raft), httpx.NewClient(agents), httpx.NewRelayClient(agents)
	d.peers = &byAddress[peerv1connect.PeerServiceClient]{make: d.newPeer}
	d.outputs = &byAddress[rotav1connect.OutputServiceClient]{make: d.newOutput}
	d.trees = &byAddress[rotav1connect.FileServiceClient]{make: d.newFiles}
	d.inputs = &byAddress[rotav1connect.StreamServiceClient]{make: d.newStreams}
	d.meters = &byAddress[rotav1connect.UsageServiceClient]{make: d.newUsage}
	return d, nil
}

// serverTLS is what the port asks of every client; nil without TLS.
func serverTLS(f pki.Files) (*tls.Config, error) {
	if !f.Enabled() {
		return nil, nil
	}
	return pki.ServerConfig(f, pki.RoleServer, pki.RoleAgent, pki.RoleOperator, pki.RoleClient)
}

func (d dialer) peer(addr string) peerv1connect.PeerServiceClient { return d.peers.of(addr) }

func (d dialer) newPeer(addr string) peerv1connect.PeerServiceClient {
	return peerv1connect.NewPeerServiceClient(d.servers, httpx.BaseURL(addr, d.tls), codec.ForClient(), connect.WithReadMaxBytes(peerBytesMax))
}

func (d dialer) operator(addr string) rotav1connect.OperatorServiceClient {
	return rotav1connect.NewOperatorServiceClient(d.servers, httpx.BaseURL(addr, d.tls))
}

func (d dialer) output(addr string) rotav1connect.OutputServiceClient { return d.outputs.of(addr) }

// newOutput bounds what an agent may answer: one message is a chunk of output.
func (d dialer) newOutput(addr string) rotav1connect.OutputServiceClient {
	return rotav1connect.NewOutputServiceClient(d.following, httpx.BaseURL(addr, d.tls),
		codec.ForClient(), connect.WithReadMaxBytes(outputBytesMax))
}

// keyring is for the gossip keys of a server or of an agent.
func (d dialer) keyring(addr string, agent bool) rotav1connect.KeyringServiceClient {
	client := d.servers
	if agent {
		client = d.agents
	}
	return rotav1connect.NewKeyringServiceClient(client, httpx.BaseURL(addr, d.tls), connect.WithReadMaxBytes(keyringBytesMax))
}

func (d dialer) files(addr string) rotav1connect.FileServiceClient { return d.trees.of(addr) }

// newFiles bounds what an agent may answer: one message is a chunk of a file. Nothing is
// compressed: it would take longer than the way.
func (d dialer) newFiles(addr string) rotav1connect.FileServiceClient {
	return rotav1connect.NewFileServiceClient(d.agents, httpx.BaseURL(addr, d.tls), codec.ForClient(),
		connect.WithReadMaxBytes(outputBytesMax+64<<10), connect.WithAcceptCompression("gzip", nil, nil))
}

func (d dialer) streams(addr string) rotav1connect.StreamServiceClient { return d.inputs.of(addr) }

// newStreams bounds what an agent may answer: a few numbers. Input is not compressed, as files.
func (d dialer) newStreams(addr string) rotav1connect.StreamServiceClient {
	return rotav1connect.NewStreamServiceClient(d.agents, httpx.BaseURL(addr, d.tls), codec.ForClient(),
		connect.WithReadMaxBytes(64<<10), connect.WithAcceptCompression("gzip", nil, nil))
}

func (d dialer) usage(addr string) rotav1connect.UsageServiceClient { return d.meters.of(addr) }

// newUsage bounds what an agent may answer: some numbers for each attempt of a node.
func (d dialer) newUsage(addr string) rotav1connect.UsageServiceClient {
	return rotav1connect.NewUsageServiceClient(d.agents, httpx.BaseURL(addr, d.tls), codec.ForClient(), connect.WithReadMaxBytes(outputBytesMax))
}

// images bounds what an agent may answer: one message is a few numbers.
func (d dialer) images(addr string) rotav1connect.ImageServiceClient {
	return rotav1connect.NewImageServiceClient(d.following, httpx.BaseURL(addr, d.tls), codec.ForClient(), connect.WithReadMaxBytes(64<<10))
}

func (d dialer) close() {
	d.servers.CloseIdleConnections()
	d.agents.CloseIdleConnections()
	d.following.CloseIdleConnections()
}
