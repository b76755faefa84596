package devcluster

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"rota/api/client"
	rotav1 "rota/api/gen/rota/v1"
	"rota/internal/process"
)

// Config says what cluster to run.
type Config struct {
	// Binary is the rota to run; this very process's if empty.
	Binary string
	// Dir holds the data and the logs of all processes.
	Dir     string
	Servers int
	Agents  int
	// BasePort: server i listens on BasePort+10*i, and gossips one above. 0:
	// free ports.
	BasePort int
	// ServerArgs and AgentArgs are added to the command lines. In them, {{name}} is the name of
	// the server or the node.
	ServerArgs []string
	AgentArgs  []string
	// TLS of clients, if the arguments say that servers and agents have it.
	TLS *tls.Config
}

// Process is one server or agent.
type Process = process.Process

// NewProcess describes a process that is no part of a cluster. Its output goes
// to a file in dir.
func NewProcess(name, addr, dir, binary string, args ...string) *Process {
	return process.New(name, addr, dir, binary, args...)
}

// Cluster is a running cluster.
type Cluster struct {
	Servers []*Process
	Agents  []*Process
	dir     string
	tls     *tls.Config
}

// Errors of a cluster, one for each fact.
var (
	ErrNotReady = errors.New("the cluster did not become ready in time")
	ErrNoLeader = errors.New("the cluster has no leader")
)

// stopGrace is how long a process may take to end by itself.
const stopGrace = 8 * time.Second

// Binary returns the rota to run: this very process's if none is named.
func Binary(named string) (string, error) {
	if named != "" {
		return named, nil
	}
	return os.Executable()
}

// Start starts all processes. On an error nothing is left running.
func Start(config Config) (*Cluster, error) {
	var err error
	if config.Binary, err = Binary(config.Binary); err != nil {
		return nil, err
	}
	c, err := plan(config)
	if err != nil {
		return nil, err
	}
	for _, p := range c.all() {
		if err := p.Start(); err != nil {
			c.Stop()
			return nil, err
		}
	}
	return c, nil
}

// plan assigns names, ports and command lines.
func plan(config Config) (*Cluster, error) {
	ports, err := choosePorts(config)
	if err != nil {
		return nil, err
	}
	c := &Cluster{dir: config.Dir, tls: config.TLS}
	var bootstrap, gossip []string
	for i := range config.Servers {
		bootstrap = append(bootstrap, fmt.Sprintf("server-%d=%s", i+1, loopback(ports[2*i])))
		gossip = append(gossip, loopback(ports[2*i+1]))
	}
	process := func(name string, port int, args ...string) *Process {
		dir := filepath.Join(config.Dir, name)
		return &Process{Name: name, Addr: loopback(port), Dir: dir, Binary: config.Binary,
			Args: append(args, "--data-dir", filepath.Join(dir, "data"), "--listen", loopback(port))}
	}
	for i := range config.Servers {
		name := fmt.Sprintf("server-%d", i+1)
		p := process(name, ports[2*i], "server", "--id", name, "--gossip", gossip[i],
			"--bootstrap", strings.Join(bootstrap, ","), "--join", strings.Join(gossip, ","))
		p.Args = append(p.Args, named(name, config.ServerArgs)...)
		c.Servers = append(c.Servers, p)
	}
	for i := range config.Agents {
		name := fmt.Sprintf("node-%d", i+1)
		at := 2 * (config.Servers + i)
		p := process(name, ports[at], "agent", "--name", name, "--gossip", loopback(ports[at+1]),
			"--join", strings.Join(gossip, ","), "--metrics", "", "--dev")
		p.Args = append(p.Args, named(name, config.AgentArgs)...)
		c.Agents = append(c.Agents, p)
	}
	return c, nil
}

// named puts the name of a process into its arguments.
func named(name string, args []string) []string {
	own := make([]string, len(args))
	for i, arg := range args {
		own[i] = strings.ReplaceAll(arg, "{{name}}", name)
	}
	return own
}

func (c *Cluster) all() []*Process { return slices.Concat(c.Servers, c.Agents) }

// Addrs are the addresses of the servers' API.
func (c *Cluster) Addrs() []string {
	addrs := make([]string, len(c.Servers))
	for i, p := range c.Servers {
		addrs[i] = p.Addr
	}
	return addrs
}

// Server returns the server with the given ID, nil if there is none.
func (c *Cluster) Server(id string) *Process {
	for _, p := range c.Servers {
		if p.Name == id {
			return p
		}
	}
	return nil
}

// Dial returns a client of all servers.
func (c *Cluster) Dial() (*client.Client, error) {
	return client.New(client.Config{Addrs: c.Addrs(), TLS: c.tls})
}

// WaitReady returns once there is a leader and all agents are registered.
func (c *Cluster) WaitReady(ctx context.Context) error {
	api, err := c.Dial()
	if err != nil {
		return err
	}
	defer api.Close()
	var last error
	for {
		try, cancel := context.WithTimeout(ctx, time.Second)
		status, err := api.Operator.GetStatus(try, &rotav1.GetStatusRequest{})
		cancel()
		if err == nil && status.LeaderId != "" && int(status.NodesUp) >= len(c.Agents) {
			return nil
		}
		if err != nil {
			last = err
		}
		for _, p := range c.all() {
			if p.Pid() == 0 {
				return p.Ended()
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w (logs are in %s): %v", ErrNotReady, c.dir, last)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// Leader returns the server that leads.
func (c *Cluster) Leader(ctx context.Context, api *client.Client) (*Process, error) {
	status, err := api.Operator.GetStatus(ctx, &rotav1.GetStatusRequest{})
	if err != nil {
		return nil, err
	}
	if p := c.Server(status.LeaderId); p != nil {
		return p, nil
	}
	return nil, ErrNoLeader
}

// Stop ends everything: agents first, so that what they run ends with them.
func (c *Cluster) Stop() {
	c.StopAgents()
	stop(c.Servers)
}

// StopAgents ends all agents and what they run.
func (c *Cluster) StopAgents() { stop(c.Agents) }

func stop(group []*Process) {
	var wg sync.WaitGroup
	for _, p := range group {
		wg.Go(func() { p.Stop(stopGrace) })
	}
	wg.Wait()
}
