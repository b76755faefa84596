package cluster

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"rota/api/httpx"
)

// Config says what cluster to run. Zero values are rota's own defaults.
type Config struct {
	// Dir holds everything of the members. It is made readable for all, as
	// actions run as nobody.
	Dir string
	// Binary is the rota to run.
	Binary  string
	Servers int
	Agents  int
	// Standbys are more servers, which run but are no members of the cluster
	// until AddVoter.
	Standbys int
	// Gateways and Generators are processes of `rota gateway` and `rota engine simulate`.
	Gateways, Generators int
	// Cores of each agent, 2 if 0. More than this machine has are not pinned.
	Cores int

	Lease, Margin, Heartbeat        time.Duration
	SnapshotThreshold, TrailingLogs uint64
	// KeepLog keeps every entry, so that ReadLog returns the whole history.
	KeepLog bool

	// Faults: the binary is built with the tag "faults", and the clock and the
	// failpoints of its members are controlled by files.
	Faults bool
	// Disk makes the data folder of a member from a folder, such as by mounting a
	// faulty file system over it; nil: the folder is used as it is. release is
	// called after the members have stopped.
	Disk func(name, dir string) (path string, release func() error, err error)
	// Route says under which addresses a server is known to the other members,
	// such as those of a proxy; nil, or empty fields: its own.
	Route func(m *Member) (Route, error)

	// Added to the command lines and environments.
	ServerArgs, AgentArgs, Env []string
}

// Route is how the others reach a server.
type Route struct{ API, Gossip string }

// names of the members, in the order in which they are plugged in.
func (c *Config) names() (servers, agents []string) {
	for i := range c.Servers + c.Standbys {
		servers = append(servers, "server-"+strconv.Itoa(i+1))
	}
	for i := range c.Agents {
		agents = append(agents, "node-"+strconv.Itoa(i+1))
	}
	return servers, agents
}

// keepAll is more entries than any run makes.
const keepAll = 1 << 40

// Cluster is a running cluster.
type Cluster struct {
	Net *Network
	// Servers are the first voters, then the standbys.
	Servers []*Member
	Agents  []*Member
	// Gateways and Generators listen on loopback: they are reached, and none of them is cut off.
	Gateways, Generators []*Member

	config  Config
	keys    keys
	tls     *tls.Config
	http    *http.Client
	release []func() error
}

// Start makes the network and the keys and starts all members. It does not wait
// until they are ready: WaitHealthy does. On an error nothing is left running.
func Start(ctx context.Context, config Config) (c *Cluster, err error) {
	if run == "" {
		return nil, ErrNotIsolated
	}
	config.Cores = cmp.Or(config.Cores, 2)
	c = &Cluster{config: config, keys: keys{filepath.Join(config.Dir, "keys")}}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Stop())
		}
	}()
	if err := openFolder(config.Dir); err != nil {
		return c, err
	}
	if c.Net, err = newNetwork(); err != nil {
		return c, err
	}
	if err := c.addMembers(); err != nil {
		return c, err
	}
	if c.tls, err = c.keys.make(c.Members()); err != nil {
		return c, err
	}
	c.http = httpx.NewClient(c.tls)
	c.release = append(c.release, func() error { c.http.CloseIdleConnections(); return nil })
	if err := errors.Join(c.setCommands(), c.addStudio()); err != nil {
		return c, err
	}
	for _, m := range slices.Concat(c.Members(), c.Generators, c.Gateways) {
		if err := errors.Join(ctx.Err(), m.Start()); err != nil {
			return c, err
		}
	}
	return c, nil
}

// openFolder makes a folder that the user of actions can pass through.
func openFolder(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return os.Chmod(dir, 0o755) // whatever the umask
}

// Members are all servers and agents.
func (c *Cluster) Members() []*Member { return slices.Concat(c.Servers, c.Agents) }

// Voters are the servers of the first configuration.
func (c *Cluster) voters() []*Member { return c.Servers[:min(c.config.Servers, len(c.Servers))] }

// Member returns the member of a name, nil if there is none.
func (c *Cluster) Member(name string) *Member {
	for _, m := range c.Members() {
		if m.Name == name {
			return m
		}
	}
	return nil
}

// addMembers plugs everybody in.
func (c *Cluster) addMembers() error {
	servers, agents := c.config.names()
	for _, name := range servers {
		m, err := c.newMember(Server, name)
		if err != nil {
			return err
		}
		c.Servers = append(c.Servers, m)
	}
	for _, name := range agents {
		m, err := c.newMember(Agent, name)
		if err != nil {
			return err
		}
		c.Agents = append(c.Agents, m)
	}
	return nil
}

const bootstrapFlag = "--bootstrap"

// setCommands says what each member runs, which takes the addresses of all.
func (c *Cluster) setCommands() error {
	routes := make([]Route, len(c.Servers))
	for i, m := range c.Servers {
		if c.config.Route != nil {
			var err error
			if routes[i], err = c.config.Route(m); err != nil {
				return fmt.Errorf("route to %s: %w", m.Name, err)
			}
		}
		routes[i].API = cmp.Or(routes[i].API, m.Addr)
		routes[i].Gossip = cmp.Or(routes[i].Gossip, m.Gossip())
		m.Advertised = routes[i].API
	}
	var bootstrap, join []string
	for i, m := range c.voters() {
		bootstrap = append(bootstrap, m.Name+"="+routes[i].API)
		join = append(join, routes[i].Gossip)
	}
	common := []string{"--gossip-key", c.keys.gossip(), "--join", strings.Join(join, ",")}
	for i, m := range c.Servers {
		m.Args = slices.Concat(m.serverArgs(routes[i]), common, c.serverFlags())
		if i < c.config.Servers {
			m.Args = append(m.Args, bootstrapFlag, strings.Join(bootstrap, ","))
		}
		m.Args = append(m.Args, c.config.ServerArgs...)
	}
	for _, m := range c.Agents {
		m.Args = slices.Concat(m.agentArgs(), common, c.agentFlags(), c.config.AgentArgs)
	}
	return nil
}

// serverFlags are those that all servers have alike.
func (c *Cluster) serverFlags() (args []string) {
	duration := func(flag string, d time.Duration) {
		if d != 0 {
			args = append(args, flag, d.String())
		}
	}
	duration("--lease", c.config.Lease)
	duration("--lease-margin", c.config.Margin)
	duration("--heartbeat-timeout", c.config.Heartbeat)
	if n := c.config.SnapshotThreshold; n != 0 {
		args = append(args, "--snapshot-threshold", strconv.FormatUint(n, 10))
	}
	trailing := c.config.TrailingLogs
	if c.config.KeepLog {
		trailing = keepAll
	}
	if trailing != 0 {
		args = append(args, "--trailing-logs", strconv.FormatUint(trailing, 10))
	}
	return args
}

// agentFlags are those that all agents have alike. They share this machine's
// memory, so each offers a part of it.
func (c *Cluster) agentFlags() []string {
	args := []string{
		"--cores", strconv.Itoa(c.config.Cores), "--memory", "512MiB", "--allow-process", "--cgroup-parent", run,
	}
	if c.config.Cores > runtime.NumCPU() {
		args = append(args, "--oversubscribe")
	}
	return args
}

// stopGrace is how long a member may take to end by itself.
const stopGrace = 10 * time.Second

// Stop ends everything: agents first, what they run, then the servers; then the
// network goes. Data folders stay.
func (c *Cluster) Stop() error {
	stopAll(slices.Concat(c.Gateways, c.Generators))
	stopAll(c.Agents)
	var errs []error
	for _, m := range c.Agents {
		errs = append(errs, m.killLeft())
	}
	removeCgroups(func(name string) bool { return name == run })
	stopAll(c.Servers)
	for _, f := range c.release {
		errs = append(errs, f())
	}
	c.release = nil
	if c.Net != nil {
		errs = append(errs, c.Net.close())
		c.Net = nil
	}
	return errors.Join(errs...)
}

func stopAll(members []*Member) {
	var wg sync.WaitGroup
	for _, m := range members {
		wg.Go(func() {
			m.Signal(sigCont)
			m.Stop(stopGrace)
		})
	}
	wg.Wait()
}
