package server

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"time"

	"github.com/hashicorp/go-hclog"

	logv1 "rota/api/gen/log/v1"
	"rota/api/pki"
	"rota/internal/telemetry"
	"rota/internal/telemetry/tracing"
	"rota/server/audit"
	"rota/server/autopilot"
	"rota/server/e2b"
	"rota/server/gossip"
	"rota/server/replica"
)

// Default addresses: loopback, as nothing else may be used without TLS.
const (
	DefaultListen = "127.0.0.1:7400"
	DefaultGossip = "127.0.0.1:7401"
)

// Config is what a server needs.
type Config struct {
	// ID is unique in the cluster and never changes.
	ID string
	// DataDir holds the log and the snapshots.
	DataDir string
	// Listen is the address of the one port for Raft, the API, health and
	// metrics; Advertise is what others dial, if it is not Listen.
	Listen, Advertise string
	// Bootstrap lists the first voters of a new cluster, the same on each of
	// them. Empty: wait until an operator adds this server.
	Bootstrap []replica.Server
	// Settings of a new cluster; nil means the defaults.
	Settings *logv1.Settings
	// Gossip finds servers for agents. Without a Bind address there is none.
	Gossip gossip.Config
	TLS    pki.Files

	// HeartbeatTimeout is how long followers wait for a leader: 1 s if zero.
	HeartbeatTimeout time.Duration
	// LogStore keeps the entries of the log: replica.WAL if empty. A log that is in the
	// other store is moved at start.
	LogStore replica.StoreKind
	// SnapshotThreshold is the number of entries between snapshots; 0 means 8192.
	SnapshotThreshold uint64
	// TrailingLogs is the number of entries that stay after a snapshot: more than
	// 2 x SnapshotThreshold; 0 means 3 x SnapshotThreshold.
	TrailingLogs uint64
	// DiskHangLimit is how long one write to disk may take before the server ends:
	// 10 s if zero.
	DiskHangLimit time.Duration
	// ReadMax is how long a client may take to read the next 64 KiB of an answer: 30 s if zero.
	ReadMax time.Duration
	// Zone is the redundancy zone of the server, such as a rack or a data center, for
	// Autopilot; empty: it has none.
	Zone string
	// Autopilot says what this server, as the leader, may do with members by itself.
	Autopilot autopilot.Settings
	// PredictorURL is where a predictor service is asked while this server leads; empty: rota predicts
	// by itself. PredictorCA is a file with the certificates by which the service is known; empty: those
	// of the system.
	PredictorURL, PredictorCA string
	// Audit is the audit log; nil: there is none. Its owner closes it after the server has
	// stopped.
	Audit *audit.Log
	// E2B are the templates of the E2B-compatible API; nil: it is not served.
	E2B     e2b.Templates
	Version string
	Logger  hclog.Logger
	// Recent remembers the newest lines of the log; nil: none. Flags are those that the server
	// runs with, for operators.
	Recent *telemetry.Recent
	Flags  map[string]string
	// Tracer makes spans; nil: none.
	Tracer *tracing.Tracer
	// Exit ends the process on a condition under which it must not go on. The
	// default logs the reason and exits with status 1 at once, so that nothing is
	// acknowledged any more.
	Exit func(error)
}

// Errors of a configuration.
var (
	ErrNoID      = errors.New("a server needs an --id that is unique in the cluster and a --data-dir")
	ErrNotListed = errors.New("the list of --bootstrap servers does not contain this server's --id with its advertised address")
)

func (c *Config) check() error {
	if c.ID == "" || c.DataDir == "" {
		return ErrNoID
	}
	if c.Listen == "" {
		c.Listen = DefaultListen
	}
	if c.Advertise == "" {
		c.Advertise = c.Listen
	}
	_, port, err := net.SplitHostPort(c.Advertise)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		return fmt.Errorf("advertised address %q: %w; give HOST:PORT with a number", c.Advertise, err)
	}
	if c.Logger == nil {
		c.Logger = hclog.NewNullLogger()
	}
	if c.Exit == nil {
		c.Exit = func(err error) {
			c.Logger.Error("this server must not go on", "error", err)
			os.Exit(1)
		}
	}
	if len(c.Bootstrap) == 0 {
		return nil
	}
	for _, s := range c.Bootstrap {
		if s.ID == c.ID && s.Address == c.Advertise {
			return nil
		}
	}
	return fmt.Errorf("%w: %s at %s", ErrNotListed, c.ID, c.Advertise)
}
