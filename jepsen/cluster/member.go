package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"rota/internal/clock/clockctl"
	"rota/internal/process"
)

// Kind of a member, which is also the role on its certificate.
type Kind string

// Kinds of members.
const (
	Server Kind = "server"
	Agent  Kind = "agent"
	// Gateway is a process of `rota gateway`, Generator one of `rota engine simulate`: a worker of
	// rollouts.
	Gateway   Kind = "gateway"
	Generator Kind = "generator"
)

// Member is one server or agent: a process, its host and its files. Start, Kill,
// Stop, Signal, Pid and Done are those of the process.
type Member struct {
	*process.Process
	Kind Kind
	IP   string
	// Advertised is the address of a server's API as other members know it.
	Advertised string
	// DataDir is its --data-dir. With Config.Disk it may be a mount that this
	// process must not touch.
	DataDir string
	// Clock is that of the process, nil unless Config.Faults is set.
	Clock *clockctl.Control

	cluster *Cluster
}

// Ports of members.
const (
	serverPort, serverGossip = "7400", "7401"
	agentPort, agentGossip   = "7410", "7411"
)

// newMember plugs a member in and makes its folder.
func (c *Cluster) newMember(kind Kind, name string) (*Member, error) {
	ip, err := c.Net.plug(name)
	if err != nil {
		return nil, fmt.Errorf("plug %s in: %w", name, err)
	}
	port := serverPort
	if kind == Agent {
		port = agentPort
	}
	dir := filepath.Join(c.config.Dir, name)
	m := &Member{
		Process: process.New(name, net.JoinHostPort(ip, port), dir, c.config.Binary),
		Kind:    kind, IP: ip, DataDir: filepath.Join(dir, "data"), cluster: c,
	}
	m.Netns = netns(name)
	if err := openFolder(dir); err != nil {
		return nil, err
	}
	m.Env = append(m.Env, c.config.Env...)
	if c.config.Faults {
		if err := m.prepareFaults(); err != nil {
			return nil, err
		}
	}
	return m, m.prepareDisk()
}

// prepareDisk makes the data folder what Config.Disk wants it to be.
func (m *Member) prepareDisk() error {
	if m.cluster.config.Disk == nil {
		return nil
	}
	path, release, err := m.cluster.config.Disk(m.Name, m.DataDir)
	if err != nil {
		return fmt.Errorf("disk of %s: %w", m.Name, err)
	}
	m.DataDir = path
	if release != nil {
		m.cluster.release = append(m.cluster.release, release)
	}
	return nil
}

// FailpointDir is the folder in which files arm the failpoints of this member.
func (m *Member) FailpointDir() string { return filepath.Join(m.Dir, "failpoints") }

// prepareFaults makes the files that control a fault build. A clock of an earlier
// cluster in the folder is replaced.
func (m *Member) prepareFaults() (err error) {
	clock := filepath.Join(m.Dir, "clock")
	if err := os.RemoveAll(clock); err != nil {
		return err
	}
	if m.Clock, err = clockctl.Create(clock); err != nil {
		return err
	}
	m.cluster.release = append(m.cluster.release, m.Clock.Close)
	m.Env = append(m.Env, "ROTA_CLOCK="+clock, "ROTA_FAILPOINTS="+m.FailpointDir())
	return os.MkdirAll(m.FailpointDir(), 0o755)
}

// Gossip is the address at which the member gossips, over UDP and TCP.
func (m *Member) Gossip() string {
	if m.Kind == Agent {
		return net.JoinHostPort(m.IP, agentGossip)
	}
	return net.JoinHostPort(m.IP, serverGossip)
}

// commonArgs are those that servers and agents have in common.
func (m *Member) commonArgs(gossip string) []string {
	files := m.cluster.keys.files(m.Name)
	return []string{
		"--data-dir", m.DataDir, "--listen", m.Addr, "--gossip", gossip,
		"--ca", files.CA, "--cert", files.Cert, "--key", files.Key,
	}
}

func (m *Member) serverArgs(r Route) []string {
	args := append([]string{"server", "--id", m.Name}, m.commonArgs(m.Gossip())...)
	if r.API != m.Addr {
		args = append(args, "--advertise", r.API)
	}
	if r.Gossip != m.Gossip() {
		args = append(args, "--gossip-advertise", r.Gossip)
	}
	return args
}

func (m *Member) agentArgs() []string {
	return append([]string{"agent", "--name", m.Name, "--metrics", "", "--label", "rack=" + m.Name}, m.commonArgs(m.Gossip())...)
}

// SetBinary makes another rota run from the next start on.
func (m *Member) SetBinary(path string) { m.Binary = path }

// Alive reports whether the process runs, which may be stopped.
func (m *Member) Alive() bool { return m.Pid() != 0 }

// WaitExit returns how the process ended, such as "exit status 1" or "signal:
// killed", once it has.
func (m *Member) WaitExit(ctx context.Context) (how string, err error) {
	done := m.Done()
	if done == nil {
		return "", fmt.Errorf("%s was never started", m.Name)
	}
	select {
	case <-done:
	case <-ctx.Done():
		return "", fmt.Errorf("%s still runs: %w", m.Name, ctx.Err())
	}
	if err := m.Err(); err != nil {
		return err.Error(), nil
	}
	return "exit status 0", nil
}

// ErrAlive: what needs a process to be gone was asked for while it runs.
var ErrAlive = errors.New("the process runs: kill or stop it first")

// Wipe empties the data folder, as of a machine that was replaced. A server then
// waits to be added: with the list of the first voters it would take itself for
// one of them, and vote without what it knew. The program that does it may touch
// what this process must not.
func (m *Member) Wipe() error {
	if m.Alive() {
		return fmt.Errorf("%s: %w", m.Name, ErrAlive)
	}
	if i := slices.Index(m.Args, bootstrapFlag); i >= 0 {
		m.Args = slices.Concat(m.Args[:i], m.Args[i+2:])
	}
	return tool("", "", "find", m.DataDir, "-mindepth", "1", "-delete")
}

// Log is what the process has written, over all its runs.
func (m *Member) Log() (string, error) {
	raw, err := os.ReadFile(m.LogPath())
	return string(raw), err
}

// LogTail is the last lines of the log, for messages about a failure.
func (m *Member) LogTail(lines int) string {
	text, err := m.Log()
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// sigCont lets a process that was stopped hear that it should end.
const sigCont = syscall.SIGCONT
