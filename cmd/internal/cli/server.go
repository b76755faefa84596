package cli

import (
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/cobra"

	logv1 "rota/api/gen/log/v1"
	"rota/server"
	"rota/server/audit"
	"rota/server/autopilot"
	"rota/server/e2b"
	"rota/server/gossip"
	"rota/server/replica"
)

// serverFlags are the flags of `rota server`.
type serverFlags struct {
	processFlags
	id        string
	bootstrap []string
	heartbeat time.Duration
	logStore  string
	snapshot  uint64
	trailing  uint64
	zone      string
	autopilot autopilot.Settings
	diskHang  time.Duration
	audit     auditFlags
	e2b       bool
	templates string
	predictor struct{ url, ca string }

	lease, leaseMargin, retention time.Duration
	queueActions                  uint32
	queueBytes, retentionBytes    size
	ledger                        ledgerFlags
}

func (a *app) serverCmd() *cobra.Command {
	var f serverFlags
	cmd := &cobra.Command{
		Use: "server", Short: "Run a server, which replicates the state and decides", Args: exactly(),
		Long: `Runs one server of a cluster. To start a new cluster, give all its first servers the same
--bootstrap list. A server that has data ignores the list. To add a server later, start
it without --bootstrap, and use "rota operator raft join" and "add-voter".

Without --ca, --cert and --key the server binds to loopback only.

You can set every flag as ROTA_SERVER_NAME in the environment, or as "name" in the
section "server" of the config file.`,
		Example: "  rota server --id s1 --data-dir s1 --bootstrap s1=127.0.0.1:7400\n" +
			"  rota server --id s1 --data-dir /var/lib/rota --listen 10.0.0.1:7400 --gossip 10.0.0.1:7401 \\\n" +
			"    --bootstrap s1=10.0.0.1:7400,s2=10.0.0.2:7400,s3=10.0.0.3:7400 --join 10.0.0.2:7401 \\\n" +
			"    --gossip-key gossip.key --ca pki/ca.pem --cert pki/s1.pem --key pki/s1-key.pem",
		Annotations: map[string]string{annotationSection: "server"},
		RunE:        func(cmd *cobra.Command, _ []string) error { return a.server(cmd, &f) },
	}
	f.processFlags.addTo(cmd.Flags(), server.DefaultListen, server.DefaultGossip, "rota-server")
	fs := cmd.Flags()
	fs.StringVar(&f.id, "id", "", "name of the server: unique; never change it")
	fs.StringSliceVar(&f.bootstrap, "bootstrap", nil, "first servers of a new cluster, ID=HOST:PORT[,...]")
	fs.DurationVar(&f.heartbeat, "heartbeat-timeout", 0, "how long followers wait for a leader (default 1s)")
	fs.StringVar(&f.logStore, "log-store", string(replica.WAL), "store of the log: wal or boltdb; the server converts an existing log at start")
	fs.Uint64Var(&f.snapshot, "snapshot-threshold", 0, "entries between snapshots (default 8192)")
	fs.Uint64Var(&f.trailing, "trailing-logs", 0, "entries that stay in the log after a snapshot (default 3 x --snapshot-threshold)")
	fs.StringVar(&f.zone, "zone", "", "redundancy zone of the server, such as its rack: with --autopilot, each zone has one voter, and its other servers are spares")
	autopilotFlags(fs, &f.autopilot)
	fs.DurationVar(&f.diskHang, "disk-hang-limit", 0, "time limit for a write to disk; the server ends if a write takes longer (default 10s)")
	fs.DurationVar(&f.lease, "lease", 0, "of a new cluster: lease of a node (default 10s)")
	fs.DurationVar(&f.leaseMargin, "lease-margin", 0, "of a new cluster: safety margin of a lease (default 2s)")
	fs.Uint32Var(&f.queueActions, "queue-actions-max", 0, "of a new cluster: maximum number of queued actions (default 2000000)")
	fs.Var(&f.queueBytes, "queue-bytes-max", "of a new cluster: maximum bytes of queued actions (default 1GiB)")
	fs.DurationVar(&f.retention, "retention", 0, "of a new cluster: how long ended actions and trajectories are retained (default 1h)")
	fs.Var(&f.retentionBytes, "retention-bytes-max", "of a new cluster: maximum bytes of ended actions (default 256MiB)")
	fs.BoolVar(&f.e2b, "e2b", false, "also serve the API of E2B, so that its SDKs can use this server")
	fs.StringVar(&f.templates, "e2b-templates", "", `file in JSON with the templates of --e2b (default: "base", with the pool "default")`)
	fs.StringVar(&f.predictor.url, "predictor-url", "", "URL of a service that predicts how much trajectories generate: https, or http on loopback")
	fs.StringVar(&f.predictor.ca, "predictor-ca", "", "file with certificates by which an https --predictor-url is known (default: those of the system)")
	f.audit.addTo(fs)
	f.ledger.addTo(cmd)
	return cmd
}

func (a *app) server(cmd *cobra.Command, f *serverFlags) error {
	logger, recent, err := f.logger("server", a.err)
	if err != nil {
		return err
	}
	cfg, err := f.config(&a.settings, logger)
	if err != nil {
		return err
	}
	cfg.Recent, cfg.Flags = recent, flagsOf(cmd)
	if cfg.Tracer, err = f.tracer("rota-server", cfg.ID, logger); err != nil {
		return err
	}
	defer cfg.Tracer.Close()
	a.reloads(cmd, logger)
	return f.audit.during(cmd.Context(), logger, func(log *audit.Log) error {
		cfg.Audit = log
		return server.Run(cmd.Context(), cfg)
	})
}

// e2bTemplates returns the templates of the API of E2B; nil if it is not served.
func (f *serverFlags) e2bTemplates() (e2b.Templates, error) {
	switch {
	case !f.e2b && f.templates != "":
		return nil, usageErrorf("--e2b-templates needs --e2b")
	case !f.e2b:
		return nil, nil
	case f.templates == "":
		return e2b.DefaultTemplates(), nil
	}
	return e2b.ReadTemplates(f.templates)
}

func (f *serverFlags) config(s *settings, logger hclog.Logger) (server.Config, error) {
	voters, err := parseServers(f.bootstrap)
	if err != nil {
		return server.Config{}, err
	}
	addr := f.advertise
	if addr == "" {
		addr = f.listen
	}
	g, err := f.gossip.config(f.id, gossip.RoleServer, addr, logger)
	if err != nil {
		return server.Config{}, err
	}
	store, err := parseLogStore(f.logStore)
	if err != nil {
		return server.Config{}, err
	}
	settings, err := f.settings()
	if err != nil {
		return server.Config{}, err
	}
	templates, err := f.e2bTemplates()
	if err != nil {
		return server.Config{}, err
	}
	return server.Config{
		E2B: templates, PredictorURL: f.predictor.url, PredictorCA: f.predictor.ca,
		ID: f.id, DataDir: f.dataDir, Listen: f.listen, Advertise: f.advertise, Bootstrap: voters,
		Settings: settings, Gossip: g, TLS: s.tlsFiles(),
		HeartbeatTimeout: f.heartbeat, LogStore: store, SnapshotThreshold: f.snapshot,
		TrailingLogs: f.trailing, DiskHangLimit: f.diskHang, Zone: f.zone, Autopilot: f.autopilot,
		Version: Version, Logger: logger,
	}, nil
}

// settings of a new cluster; zero means the default.
func (f *serverFlags) settings() (*logv1.Settings, error) {
	s := &logv1.Settings{
		LeaseNs: int64(f.lease), LeaseMarginNs: int64(f.leaseMargin),
		QueueActionsMax: f.queueActions, QueueBytesMax: uint64(f.queueBytes),
		RetentionNs: int64(f.retention), RetentionBytesMax: uint64(f.retentionBytes),
	}
	return s, f.ledger.apply(s)
}

// parseLogStore reads the name of a store for the log.
func parseLogStore(name string) (replica.StoreKind, error) {
	switch kind := replica.StoreKind(name); kind {
	case replica.WAL, replica.BoltDB:
		return kind, nil
	}
	return "", usageErrorf("unknown --log-store %q; use %s or %s", name, replica.WAL, replica.BoltDB)
}

// parseServers reads ID=HOST:PORT.
func parseServers(list []string) ([]replica.Server, error) {
	var servers []replica.Server
	for _, text := range list {
		id, addr, ok := strings.Cut(text, "=")
		if !ok || id == "" || addr == "" {
			return nil, usageErrorf("--bootstrap: %q is not ID=HOST:PORT", text)
		}
		servers = append(servers, replica.Server{ID: id, Address: addr})
	}
	return servers, nil
}
