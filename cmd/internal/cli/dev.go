package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"rota/api/backoff"
	"rota/cmd/internal/devcluster"
	"rota/server/gateway"
)

// readyTimeout is how long a cluster on loopback may take to become ready.
const readyTimeout = 30 * time.Second

type devFlags struct {
	servers, agents, port int
	dir, simulatedGPUs    string
	gateway               bool
}

// readyFile is written once the cluster can be used.
const readyFile = "ready.json"

// devReady is what `rota dev -o json` prints, and leaves in ready.json, once the
// cluster can be used.
type devReady struct {
	Addr    string   `json:"addr"`
	Servers []string `json:"servers"`
	Agents  int      `json:"agents"`
	Dir     string   `json:"dir"`
	Gateway string   `json:"gateway,omitempty"`
}

func (a *app) devCmd() *cobra.Command {
	var f devFlags
	cmd := &cobra.Command{
		Use: "dev", Short: "Run a whole cluster on loopback, for trials", Args: exactly(),
		Long: `Starts servers and agents as separate processes and runs until Ctrl-C, which stops all of
them. Commands of actions run as your user. Without --dir the data are in a temporary
folder, which is removed at the end unless the cluster has failed.`,
		Example: "  rota dev\n  rota dev --gateway\n  rota dev --servers 5 --port 0 --dir /tmp/cluster",
		RunE:    func(cmd *cobra.Command, _ []string) error { return a.dev(cmd.Context(), &f) },
	}
	cmd.Flags().IntVar(&f.servers, "servers", 3, "number of servers")
	cmd.Flags().IntVar(&f.agents, "agents", 1, "number of agents")
	cmd.Flags().IntVar(&f.port, "port", 7400, "port of the first server; each further server uses the port 10 higher; 0: free ports")
	cmd.Flags().BoolVar(&f.gateway, "gateway", false, "also run a gateway, at 127.0.0.1:8000, or at a free port with --port 0")
	cmd.Flags().StringVar(&f.dir, "dir", "", "folder of the data, not removed at the end (default: a temporary folder)")
	cmd.Flags().StringVar(&f.simulatedGPUs, "simulated-gpus", "", "simulated GPUs that each agent declares, such as 2xH100:80GiB")
	return cmd
}

func (a *app) dev(ctx context.Context, f *devFlags) error {
	if f.servers < 1 || f.agents < 0 {
		return usageErrorf("--servers must be at least 1, and --agents at least 0")
	}
	var agentArgs []string
	if f.simulatedGPUs != "" {
		if _, err := parseSimulated(f.simulatedGPUs); err != nil {
			return err
		}
		agentArgs = []string{"--simulated-gpus", f.simulatedGPUs}
	}
	if f.dir != "" {
		dir, err := filepath.Abs(f.dir)
		if err != nil {
			return err
		}
		return a.devIn(ctx, dir, agentArgs, f)
	}
	dir, err := os.MkdirTemp("", "rota-dev-")
	if err != nil {
		return err
	}
	err = a.devIn(ctx, dir, agentArgs, f)
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("%w\nThe data and the logs stay in %s", err, dir)
	}
	return errors.Join(err, os.RemoveAll(dir))
}

// devIn runs the cluster with its data in a folder.
func (a *app) devIn(ctx context.Context, dir string, agentArgs []string, f *devFlags) error {
	// A file from an earlier run would describe a cluster that no longer exists.
	if err := os.Remove(filepath.Join(dir, readyFile)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	c, err := devcluster.Start(devcluster.Config{Dir: dir, Servers: f.servers, Agents: f.agents, BasePort: f.port, AgentArgs: agentArgs, ServerArgs: []string{"--e2b"}})
	if err != nil {
		return err
	}
	defer c.Stop()
	ready, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	if err := c.WaitReady(ready); err != nil {
		return err
	}
	front := ""
	if f.gateway {
		p, err := startDevGateway(ready, c, dir, f.port)
		if err != nil {
			return err
		}
		defer p.Stop(devGatewayGrace)
		front = "http://" + p.Addr
	}
	if err := a.announce(c, dir, f, front); err != nil {
		return err
	}
	<-ctx.Done()
	fmt.Fprintln(a.err, "rota: stopping the cluster")
	return nil
}

// devGatewayGrace is how long the gateway may take to end by itself.
const devGatewayGrace = 5 * time.Second

// startDevGateway starts a gateway on loopback, and returns when it has heard of routes.
func startDevGateway(ctx context.Context, c *devcluster.Cluster, dir string, port int) (*devcluster.Process, error) {
	addr := gateway.DefaultListen
	if port == 0 {
		free, err := devcluster.FreePorts(1)
		if err != nil {
			return nil, err
		}
		addr = net.JoinHostPort("127.0.0.1", strconv.Itoa(free[0]))
	}
	p := devcluster.NewProcess("gateway", addr, filepath.Join(dir, "gateway"), c.Servers[0].Binary, "gateway", "--listen", addr, "--servers", strings.Join(c.Addrs(), ","))
	if err := p.Start(); err != nil {
		return nil, err
	}
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/health", nil)
		if err == nil {
			var resp *http.Response
			if resp, err = http.DefaultClient.Do(req); err == nil {
				resp.Body.Close()
				if resp.StatusCode == http.StatusOK {
					return p, nil
				}
				err = fmt.Errorf("it answers with status %d", resp.StatusCode)
			}
		}
		if p.Pid() == 0 {
			return nil, p.Ended()
		}
		if backoff.Sleep(ctx, 50*time.Millisecond) != nil {
			p.Kill()
			return nil, fmt.Errorf("the gateway is not ready: %w", err)
		}
	}
}

// announce tells people on standard output and programs in ready.json how to
// reach the cluster.
func (a *app) announce(c *devcluster.Cluster, dir string, f *devFlags, front string) error {
	addr := strings.Join(c.Addrs(), ",")
	ready := devReady{Addr: addr, Servers: c.Addrs(), Agents: f.agents, Dir: dir, Gateway: front}
	raw, err := json.Marshal(ready)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, readyFile), raw, 0o644); err != nil {
		return err
	}
	if a.json() {
		return writeJSON(a.out, ready)
	}
	prefix := ""
	if f.port != 7400 {
		prefix = "  export ROTA_ADDR=" + addr + "\n"
	}
	if front != "" {
		front = "Gateway: " + front + "\n"
	}
	_, err = fmt.Fprintf(a.out, `%s and %s are ready at %s
%sLogs and data: %s

In another terminal:
%s  rota run -- echo hello
  rota node list
  rota operator status

Ctrl-C stops everything.
`, plural(f.servers, "server"), plural(f.agents, "agent"), addr, front, dir, prefix)
	return err
}
