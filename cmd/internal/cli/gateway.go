package cli

import (
	"context"
	"io"
	"time"

	"github.com/spf13/cobra"

	"rota/internal/telemetry"
	"rota/server/gateway"
)

// gatewayFlags are the flags of `rota gateway`.
type gatewayFlags struct {
	cfg        gateway.Config
	unassigned string
	body       size
	bytes      size
	logLevel   string
	logFormat  string
}

// leastLoaded is a value of --unassigned.
const leastLoaded = "least-loaded"

func (a *app) gatewayCmd() *cobra.Command {
	d := gateway.Defaults()
	f := gatewayFlags{cfg: d, body: size(d.BodyBytesMax), bytes: size(d.BytesMax)}
	cmd := &cobra.Command{
		Use: "gateway", Short: "Run a gateway, an OpenAI-compatible front of rollout workers", Args: exactly(),
		Long: `Takes requests for chat completions, completions and responses, and sends each to the
worker that the cluster has assigned to its trajectory. A request names its trajectory by
the header "Rota-Trajectory: 7", by "user": "trajectory-7", or by the API key trajectory-7.

A gateway stores nothing. Run as many as you like, and restart them at any time: one that
is told to stop lets requests end first.

Without --tls-cert and --tls-key the gateway binds to loopback only. Beyond loopback it
also needs --tls-client-ca, --api-keys, or both. The flags --ca, --cert and --key are for
its connections to the servers.

You can set every flag as ROTA_GATEWAY_NAME in the environment, or as "name" in the
section "gateway" of the config file.`,
		Example: "  rota gateway --servers 127.0.0.1:7400\n" +
			"  rota gateway --servers 10.0.0.1:7400,10.0.0.2:7400 --ca pki/ca.pem --cert pki/gw.pem --key pki/gw-key.pem \\\n" +
			"    --listen 10.0.0.8:8000 --tls-cert web.pem --tls-key web-key.pem --api-keys keys.txt",
		Annotations: map[string]string{annotationSection: "gateway"},
		RunE:        func(cmd *cobra.Command, _ []string) error { return a.gateway(cmd.Context(), &f) },
	}
	fs, c := cmd.Flags(), &f.cfg
	fs.StringVar(&c.Listen, "listen", d.Listen, "address to listen on; without TLS, loopback only")
	fs.StringSliceVar(&c.Servers, "servers", nil, "addresses of servers (default: --addr)")
	fs.StringVar(&c.Cert, "tls-cert", "", "certificate that clients see, PEM; turns TLS on")
	fs.StringVar(&c.Key, "tls-key", "", "private key of --tls-cert, PEM")
	fs.StringVar(&c.ClientCA, "tls-client-ca", "", "require certificates of clients from this authority, PEM")
	fs.StringVar(&c.APIKeys, "api-keys", "", "file with one API key in each line, of which clients must send one")
	fs.StringVar(&c.WorkerCA, "worker-ca", "", "authority of workers with an https URL, PEM (default: those of the system)")
	fs.StringVar(&c.WorkerKey, "worker-api-key", "", "file with the API key that workers ask for")
	fs.StringVar(&f.unassigned, "unassigned", "refuse", "requests without a trajectory: refuse, or least-loaded for the worker of their model with the fewest requests")
	fs.DurationVar(&c.Wait, "wait", d.Wait, "how long a request waits for a worker, or while its trajectory is suspended")
	fs.DurationVar(&c.TokenTimeout, "token-timeout", d.TokenTimeout, "how long a worker may send nothing before it counts as failed; 0: forever")
	fs.DurationVar(&c.ClientTimeout, "client-timeout", d.ClientTimeout, "how long a client may read nothing of its answer, or take to send its request")
	fs.Int64Var(&c.RequestsMax, "requests-max", d.RequestsMax, "maximum number of requests that run or wait")
	fs.Var(&f.body, "body-max", "maximum size of a request")
	fs.Var(&f.bytes, "bytes-max", "memory of all requests that run or wait, with their answers, from which on nothing new is taken and nothing large grows; each request may have some MiB beyond it; at least twice --body-max and 1 MiB")
	fs.DurationVar(&c.KeepAlive, "keep-alive", d.KeepAlive, "how long a stream may be silent before its client is sent a comment; 0: forever")
	fs.DurationVar(&c.ReportInterval, "report-interval", d.ReportInterval, "how often to tell the cluster what was generated")
	fs.IntVar(&c.ReportTurns, "report-turns", d.ReportTurns, "number of turns after which to tell it before that")
	fs.DurationVar(&c.Drain, "drain", d.Drain, "how long requests may take to end when the gateway stops")
	fs.StringVar(&f.logLevel, "log-level", "info", "trace, debug, info, warn or error")
	fs.StringVar(&f.logFormat, "log-format", telemetry.Text, "text, or json: each log entry is a line of JSON")
	words(cmd, "unassigned", "refuse", leastLoaded)
	return cmd
}

func (a *app) gateway(ctx context.Context, f *gatewayFlags) error {
	cfg, err := f.config(&a.settings, a.err)
	if err != nil {
		return err
	}
	return gateway.Run(ctx, cfg)
}

func (f *gatewayFlags) config(s *settings, log io.Writer) (gateway.Config, error) {
	cfg := f.cfg
	logger, _, err := (&processFlags{logLevel: f.logLevel, logFormat: f.logFormat}).logger("gateway", log)
	if err != nil {
		return cfg, err
	}
	cfg.Logger, cfg.TLS, cfg.Version = logger, s.tlsFiles(), Version
	cfg.BodyBytesMax, cfg.BytesMax = int64(f.body), int64(f.bytes)
	if len(cfg.Servers) == 0 {
		if cfg.Servers, err = splitAddrs(s.addr); err != nil {
			return cfg, err
		}
	}
	switch f.unassigned {
	case "refuse":
	case leastLoaded:
		cfg.LeastLoaded = true
	default:
		return cfg, usageErrorf("unknown --unassigned %q; use refuse or %s", f.unassigned, leastLoaded)
	}
	if cfg.TokenTimeout == 0 {
		cfg.TokenTimeout = -1
	}
	if cfg.KeepAlive == 0 {
		cfg.KeepAlive = -1
	}
	for name, d := range map[string]time.Duration{
		"wait": cfg.Wait, "client-timeout": cfg.ClientTimeout, "report-interval": cfg.ReportInterval, "drain": cfg.Drain,
	} {
		if d <= 0 {
			return cfg, usageErrorf("--%s is %v; set it to more than 0", name, d)
		}
	}
	if cfg.RequestsMax < 1 || cfg.BodyBytesMax < 1 || cfg.ReportTurns < 1 {
		return cfg, usageErrorf("--requests-max, --body-max and --report-turns must be at least 1")
	}
	return cfg, nil
}
