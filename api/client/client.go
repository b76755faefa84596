package client

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"

	"rota/api/codec"
	"rota/api/gen/rota/v1/rotav1connect"
	"rota/api/httpx"
)

// ErrNoAddrs is returned by New without an address of a server.
var ErrNoAddrs = errors.New("no address of a server is given: name at least one as host:port")

var errClosed = errors.New("client is closed")

// Config says how to reach a cluster. Only Addrs is needed.
type Config struct {
	// Addrs are servers of the cluster, as host:port. One is enough to find the
	// leader; all of them are needed to survive the loss of any.
	Addrs []string
	// TLS of the connections, such as pki.ClientConfig makes; nil for none.
	TLS *tls.Config
	// Token returns the secret of a token, or a JWT, for a call; nil or an empty text: none. It is
	// asked for each call, so that a token can be replaced. It is sent with TLS only, or to
	// loopback addresses. See rights.FromEnvironment.
	Token func() (string, error)
	// HTTP replaces the HTTP client that is otherwise made for TLS.
	HTTP connect.HTTPClient
	// RetryFor is how long a call is repeated before its last error is returned;
	// 0 means 30 s. Servers remember a submission for somewhat longer, an hour at
	// most, so it also bounds what they have to remember. When they may have
	// forgotten one, it is not repeated any more: ErrUnknownOutcome.
	RetryFor time.Duration
	// InFlight is how many batches of submissions may be under way at the same
	// time; 0 means 2. More makes batches smaller.
	InFlight int
	// Namespace of submissions; "default" if empty.
	Namespace string
	// Waiting, if set, is told in a sentence that no majority of the servers answers,
	// as soon as one of them says so: until RetryFor is over, calls are repeated all the
	// same. It is called once for each such sentence, by any goroutine.
	Waiting func(reason string)
	// Throttled, if set, is told each time that servers refuse a part of a batch of submissions
	// for overload, after which submissions of this client wait. It is called by any goroutine.
	Throttled func(Throttled)
}

// Client talks to one cluster. It is safe for concurrent use.
type Client struct {
	// The services themselves. Unary calls are repeated if they may be; streams
	// are not.
	Actions      rotav1connect.ActionServiceClient
	Trajectories rotav1connect.TrajectoryServiceClient
	// Files and Streams ask for no compression: it takes longer than the way in most places.
	Files      rotav1connect.FileServiceClient
	Streams    rotav1connect.StreamServiceClient
	Usage      rotav1connect.UsageServiceClient
	Images     rotav1connect.ImageServiceClient
	Nodes      rotav1connect.NodeServiceClient
	Classes    rotav1connect.ClassServiceClient
	Quotas     rotav1connect.QuotaServiceClient
	Jobs       rotav1connect.JobServiceClient
	Turns      rotav1connect.TurnServiceClient
	Ledger     rotav1connect.LedgerServiceClient
	Engines    rotav1connect.EngineServiceClient
	Residency  rotav1connect.ResidencyServiceClient
	Migrations rotav1connect.MigrationServiceClient
	Snapshots  rotav1connect.SnapshotServiceClient
	Workers    rotav1connect.WorkerServiceClient
	Rewards    rotav1connect.RewardServiceClient
	Rollouts   rotav1connect.RolloutServiceClient
	Operator   rotav1connect.OperatorServiceClient
	Access     rotav1connect.AccessServiceClient

	config  Config
	servers *servers
	clock   logClock
	batcher *batcher
	waits   waits
	// waitingFor is the sentence that Config.Waiting was told last.
	waitingFor atomic.Value

	idPrefix string
	idNext   atomic.Uint64

	closing context.Context
	close   context.CancelFunc
	wg      sync.WaitGroup
}

// New returns a client. It connects at the first call.
func New(config Config) (*Client, error) {
	if len(config.Addrs) == 0 {
		return nil, ErrNoAddrs
	}
	if config.RetryFor == 0 {
		config.RetryFor = 30 * time.Second
	}
	if config.InFlight == 0 {
		config.InFlight = 2
	}
	if config.HTTP == nil {
		config.HTTP = httpx.NewClient(config.TLS)
	}
	c := &Client{config: config, servers: newServers(config), clock: newClock(), idPrefix: randomPrefix()}
	if err := c.servers.checkToken(); err != nil {
		return nil, err
	}
	c.closing, c.close = context.WithCancel(context.Background())
	c.batcher = &batcher{client: c}
	c.waits.client = c

	options := []connect.ClientOption{codec.ForClient(), connect.WithInterceptors(&retrier{c})}
	base := c.servers.baseURL()
	c.Actions = rotav1connect.NewActionServiceClient(c.servers, base, options...)
	c.Trajectories = rotav1connect.NewTrajectoryServiceClient(c.servers, base, options...)
	c.Files = rotav1connect.NewFileServiceClient(c.servers, base, append(options, connect.WithAcceptCompression("gzip", nil, nil))...)
	c.Streams = rotav1connect.NewStreamServiceClient(c.servers, base, append(options, connect.WithAcceptCompression("gzip", nil, nil))...)
	c.Usage = rotav1connect.NewUsageServiceClient(c.servers, base, options...)
	c.Images = rotav1connect.NewImageServiceClient(c.servers, base, options...)
	c.Nodes = rotav1connect.NewNodeServiceClient(c.servers, base, options...)
	c.Classes = rotav1connect.NewClassServiceClient(c.servers, base, options...)
	c.Quotas = rotav1connect.NewQuotaServiceClient(c.servers, base, options...)
	c.Jobs = rotav1connect.NewJobServiceClient(c.servers, base, options...)
	c.Turns = rotav1connect.NewTurnServiceClient(c.servers, base, options...)
	c.Ledger = rotav1connect.NewLedgerServiceClient(c.servers, base, options...)
	c.Engines = rotav1connect.NewEngineServiceClient(c.servers, base, options...)
	c.Residency = rotav1connect.NewResidencyServiceClient(c.servers, base, options...)
	c.Snapshots = rotav1connect.NewSnapshotServiceClient(c.servers, base, options...)
	c.Migrations = rotav1connect.NewMigrationServiceClient(c.servers, base, options...)
	c.Workers = rotav1connect.NewWorkerServiceClient(c.servers, base, options...)
	c.Rewards = rotav1connect.NewRewardServiceClient(c.servers, base, options...)
	c.Rollouts = rotav1connect.NewRolloutServiceClient(c.servers, base, options...)
	c.Operator = rotav1connect.NewOperatorServiceClient(c.servers, base, options...)
	c.Access = rotav1connect.NewAccessServiceClient(c.servers, base, options...)
	return c, nil
}

// Close ends what the client does in the background. Submissions that are
// under way end with an error and an unknown outcome.
func (c *Client) Close() {
	c.close()
	c.wg.Wait()
	if h, ok := c.config.HTTP.(interface{ CloseIdleConnections() }); ok {
		h.CloseIdleConnections()
	}
}

// requestID returns an identifier that no other client makes: a random prefix
// of this client and a number. Short, since servers keep it.
func (c *Client) requestID() string {
	return c.idPrefix + "." + strconv.FormatUint(c.idNext.Add(1), 36)
}

func randomPrefix() string {
	var b [9]byte
	rand.Read(b[:])
	return base64.RawURLEncoding.EncodeToString(b[:])
}
