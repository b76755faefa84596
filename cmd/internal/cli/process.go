package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"regexp"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"rota/internal/telemetry"
	"rota/internal/telemetry/tracing"
	"rota/server/gossip"
)

// processFlags are the common flags of server and agent.
type processFlags struct {
	dataDir           string
	listen, advertise string
	gossip            gossipFlags
	logLevel          string
	logFormat         string
	otlp              string
	traceRatio        float64
}

// gossipFlags say how a process finds the other processes.
type gossipFlags struct {
	bind, advertise, keyFile, cluster string
	join, networks                    []string
}

func (f *processFlags) addTo(fs *pflag.FlagSet, listen, gossipBind, dataDir string) {
	fs.StringVar(&f.dataDir, "data-dir", dataDir, "folder of the data; one process per folder")
	fs.StringVar(&f.listen, "listen", listen, "address to listen on; without TLS, loopback only")
	fs.StringVar(&f.advertise, "advertise", "", "address that other processes use (default: --listen)")
	fs.StringVar(&f.gossip.bind, "gossip", gossipBind, `address to gossip on, UDP and TCP; "" for none`)
	fs.StringVar(&f.gossip.advertise, "gossip-advertise", "", "gossip address that other processes use (default: --gossip)")
	fs.StringVar(&f.gossip.keyFile, "gossip-key", "", "file with 32 random bytes in base64, or several lines of them: the first encrypts, and the file is read again when it changes; required unless all addresses are loopback")
	fs.StringSliceVar(&f.gossip.networks, "gossip-network", nil, "accept members only from these networks, as CIDRs (default: all)")
	fs.StringVar(&f.gossip.cluster, "cluster-name", "rota", "name of the cluster; members of other clusters are refused")
	fs.StringSliceVar(&f.gossip.join, "join", nil, "gossip addresses of other members")
	fs.StringVar(&f.logLevel, "log-level", "info", "trace, debug, info, warn or error")
	fs.StringVar(&f.otlp, "otlp-endpoint", "", "URL of an OTLP receiver of traces, such as http://127.0.0.1:4318; empty: none")
	fs.Float64Var(&f.traceRatio, "trace-ratio", 1, "part of the actions without a trace of their client that are traced, from 0 to 1")
	fs.StringVar(&f.logFormat, "log-format", telemetry.Text, "text, or json: each log entry is a line of JSON")
}

// logger writes to w. It remembers the newest lines, for operators.
func (f *processFlags) logger(name string, w io.Writer) (hclog.Logger, *telemetry.Recent, error) {
	level := hclog.LevelFromString(f.logLevel)
	if level == hclog.NoLevel {
		return nil, nil, usageErrorf("unknown --log-level %q; levels are trace, debug, info, warn and error", f.logLevel)
	}
	if f.logFormat != telemetry.Text && f.logFormat != telemetry.JSON {
		return nil, nil, usageErrorf("unknown --log-format %q; use text or json", f.logFormat)
	}
	logger, recent := telemetry.NewLog(name, level, f.logFormat, w)
	return logger, recent, nil
}

// tracer sends spans to --otlp-endpoint; nil: none.
func (f *processFlags) tracer(service, instance string, logger hclog.Logger) (*tracing.Tracer, error) {
	if f.otlp == "" {
		return nil, nil
	}
	t, err := tracing.Open(tracing.Options{
		Endpoint: f.otlp, Ratio: f.traceRatio, Service: service, Instance: instance, Version: Version,
		Failed: func(err error) { logger.Debug("spans were not sent", "error", err) },
	})
	if err != nil {
		return nil, usageErrorf("--otlp-endpoint, --trace-ratio: %w", err)
	}
	return t, nil
}

// flagsOf are the flags that a command runs with. Secrets are in files, which they name. What URLs
// say beside host and path may be one, too.
func flagsOf(cmd *cobra.Command) map[string]string {
	all := map[string]string{}
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		value := urlUser.ReplaceAllString(inEffect(f), "://HIDDEN@")
		all[f.Name] = urlQuery.ReplaceAllString(value, "${1}?HIDDEN")
	})
	return all
}

var (
	urlUser  = regexp.MustCompile(`://[^/?#\s]*@`)
	urlQuery = regexp.MustCompile(`(://[^?#\s,]*)\?[^#\s,]*`)
)

// namedDefault is a default in the help of a flag, as in: how long it waits (default 1s).
var namedDefault = regexp.MustCompile(`\(default:? ([^();]+)\)`)

// inEffect is the value of a flag. Where nothing stands for a default, the help names it.
func inEffect(f *pflag.Flag) string {
	value := f.Value.String()
	if m := namedDefault.FindStringSubmatch(f.Usage); m != nil && value == f.DefValue {
		return m[1]
	}
	return value
}

// config is that of a member that serves at addr.
func (f *gossipFlags) config(name string, role gossip.Role, addr string, logger hclog.Logger) (gossip.Config, error) {
	c := gossip.Config{
		ClusterName: f.cluster, Name: name, Meta: gossip.Member{Role: role, Addr: addr},
		Bind: f.bind, Advertise: f.advertise, Seeds: f.join, AllowedNetworks: f.networks, Logger: logger,
	}
	if f.keyFile == "" {
		return c, nil
	}
	var err error
	c.KeyFile = f.keyFile
	c.Keys, err = gossip.LoadKeys(f.keyFile)
	return c, err
}

// superviseCmd is the command that agents start, with the flags of the runtime.
func (a *app) superviseCmd() *cobra.Command {
	return &cobra.Command{
		Use: "supervise", Short: "Be the parent of an agent's attempts", Hidden: true, DisableFlagParsing: true,
		RunE: func(cmd *cobra.Command, args []string) error { return supervise(cmd.Context(), args) },
	}
}

// errRoot means that attempts would run with all privileges.
var errRoot = errors.New("refusing to run commands of actions as root: give --run-as a user, or use --dev on a machine of your own")

// runAs turns a user into uid:gid for the runtime. Root becomes the user nobody: a
// command from the network must not own the node.
func runAs(name string) (string, error) {
	if os.Geteuid() != 0 {
		if name != "" {
			return "", usageErrorf("--run-as needs root; without it commands run as the agent's own user")
		}
		return "", nil
	}
	if name == "" {
		name = "nobody"
	}
	u, err := user.Lookup(name)
	if err != nil {
		if u, err = user.LookupId(name); err != nil {
			return "", usageErrorf("--run-as: there is no user %q", name)
		}
	}
	if u.Uid == "0" {
		return "", errRoot
	}
	return fmt.Sprintf("%s:%s", u.Uid, u.Gid), nil
}
