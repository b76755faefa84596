package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"rota/server/gossip"
)

// processFlags are the common flags of server and agent.
type processFlags struct {
	dataDir           string
	listen, advertise string
	gossip            gossipFlags
	logLevel          string
	logJSON           bool
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
	fs.StringVar(&f.gossip.keyFile, "gossip-key", "", "file with 32 random bytes in base64; required unless all addresses are loopback")
	fs.StringSliceVar(&f.gossip.networks, "gossip-network", nil, "accept members only from these networks, as CIDRs (default: all)")
	fs.StringVar(&f.gossip.cluster, "cluster-name", "rota", "name of the cluster; members of other clusters are refused")
	fs.StringSliceVar(&f.gossip.join, "join", nil, "gossip addresses of other members")
	fs.StringVar(&f.logLevel, "log-level", "info", "trace, debug, info, warn or error")
	fs.BoolVar(&f.logJSON, "log-json", false, "write each log entry as a line of JSON")
}

// logger writes to standard error.
func (f *processFlags) logger(name string, w io.Writer) (hclog.Logger, error) {
	level := hclog.LevelFromString(f.logLevel)
	if level == hclog.NoLevel {
		return nil, usageErrorf("unknown --log-level %q; levels are trace, debug, info, warn and error", f.logLevel)
	}
	return hclog.New(&hclog.LoggerOptions{Name: name, Level: level, JSONFormat: f.logJSON, Output: w}), nil
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
	c.Key, err = gossip.LoadKey(f.keyFile)
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
