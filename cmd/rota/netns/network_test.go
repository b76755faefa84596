package netns

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// namePrefix begins the names of what these tests make outside their processes.
const namePrefix = "rota-netns-"

// prefix is that of this process, so that what it leaves is known as abandoned.
func prefix() string { return namePrefix + strconv.Itoa(os.Getpid()) + "-" }

// network is a bridge in a namespace and the hosts that are plugged into it.
// The test is a host too: it reaches the others by the bridge's own address.
type network struct {
	*testing.T
	hosts []*host
}

// host is a namespace with one interface.
type host struct {
	net  *network
	name string // of the namespace
	ip   string
	port string // the bridge's end of its cable
}

// nowhere is the address of no interface.
const nowhere = "02:00:00:00:00:01"

func newNetwork(t *testing.T) *network {
	t.Helper()
	sweep(t)
	n := &network{T: t}
	n.ip("netns", "add", n.hub())
	t.Cleanup(func() { remove(t, n.hub()) })
	n.ip("-n", n.hub(), "link", "add", "br0", "type", "bridge")
	n.ip("-n", n.hub(), "addr", "add", "10.77.0.1/24", "dev", "br0")
	n.ip("-n", n.hub(), "link", "set", "br0", "up")
	return n
}

func (n *network) hub() string { return prefix() + "hub" }

// plug adds a host.
func (n *network) plug(name string) *host {
	n.Helper()
	number := len(n.hosts) + 1
	h := &host{
		net: n, name: prefix() + name,
		ip: fmt.Sprintf("10.77.0.%d", 10+number), port: "port" + strconv.Itoa(number),
	}
	n.ip("netns", "add", h.name)
	n.Cleanup(func() { remove(n.T, h.name) })
	n.ip("-n", n.hub(), "link", "add", h.port, "type", "veth", "peer", "name", "eth0", "netns", h.name)
	n.ip("-n", n.hub(), "link", "set", h.port, "master", "br0", "up")
	n.ip("-n", h.name, "link", "set", "lo", "up")
	n.ip("-n", h.name, "addr", "add", h.ip+"/24", "dev", "eth0")
	n.ip("-n", h.name, "link", "set", "eth0", "up")
	n.hosts = append(n.hosts, h)
	return h
}

// ip runs the ip command, which must succeed.
func (n *network) ip(args ...string) {
	n.Helper()
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		n.Fatalf("ip %s: %v: %s", strings.Join(args, " "), err, out)
	}
}

// unplug pulls the cable of a host, and mend puts it back.
func (h *host) unplug() { h.net.Helper(); h.net.ip("-n", h.net.hub(), "link", "set", h.port, "down") }

func (h *host) mend() { h.net.Helper(); h.net.ip("-n", h.net.hub(), "link", "set", h.port, "up") }

// loseTo loses what this host sends to another one: it is addressed to an
// interface that does not exist. The other way nothing changes.
func (h *host) loseTo(other *host) {
	h.net.Helper()
	h.net.ip("-n", h.name, "neigh", "replace", other.ip, "lladdr", nowhere, "dev", "eth0", "nud", "permanent")
}

// reach ends loseTo.
func (h *host) reach(other *host) {
	h.net.Helper()
	h.net.ip("-n", h.name, "neigh", "del", other.ip, "dev", "eth0")
}

// command is the command line that runs a program on the host.
func (h *host) command(program string, args ...string) []string {
	return append([]string{"enter", namespaceFile(h.name), program}, args...)
}

func namespaceFile(name string) string { return filepath.Join("/run/netns", name) }

// dial connects from the bridge.
func (n *network) dial(ctx context.Context, proto, addr string) (net.Conn, error) {
	hub, err := os.Open(namespaceFile(n.hub()))
	if err != nil {
		return nil, err
	}
	defer hub.Close()
	type result struct {
		conn net.Conn
		err  error
	}
	done := make(chan result, 1)
	go func() {
		// The thread goes home again: it may be the process's first one, which does
		// not end with its goroutine and by which others judge where the process is.
		runtime.LockOSThread()
		home, err := os.Open("/proc/thread-self/ns/net")
		if err != nil {
			done <- result{err: err}
			return
		}
		defer home.Close()
		if err := unix.Setns(int(hub.Fd()), unix.CLONE_NEWNET); err != nil {
			done <- result{err: err}
			return
		}
		var d net.Dialer
		conn, err := d.DialContext(ctx, proto, addr)
		if unix.Setns(int(home.Fd()), unix.CLONE_NEWNET) == nil {
			runtime.UnlockOSThread()
		}
		done <- result{conn, err}
	}()
	r := <-done
	return r.conn, r.err
}

// remove ends what still runs in a namespace and removes it, with its interface.
func remove(t *testing.T, name string) {
	out, _ := exec.Command("ip", "netns", "pids", name).Output()
	for _, pid := range strings.Fields(string(out)) {
		if n, err := strconv.Atoi(pid); err == nil && n != os.Getpid() {
			t.Logf("process %d is left in %s", n, name)
			_ = syscall.Kill(n, syscall.SIGKILL)
		}
	}
	if out, err := exec.Command("ip", "netns", "del", name).CombinedOutput(); err != nil {
		t.Errorf("remove namespace %s: %v: %s", name, err, out)
	}
}

// sweep removes what a test left behind that was killed.
func sweep(t *testing.T) {
	for _, name := range abandoned("/run/netns") {
		remove(t, name)
	}
	for _, name := range abandoned(os.TempDir()) {
		os.RemoveAll(filepath.Join(os.TempDir(), name))
	}
}

// abandoned are the names in a folder that belong to processes that are gone.
func abandoned(dir string) (names []string) {
	entries, _ := os.ReadDir(dir) // it need not exist
	for _, e := range entries {
		rest, ours := strings.CutPrefix(e.Name(), namePrefix)
		pid, _, _ := strings.Cut(rest, "-")
		n, err := strconv.Atoi(pid)
		if ours && err == nil && syscall.Kill(n, 0) == syscall.ESRCH {
			names = append(names, e.Name())
		}
	}
	return names
}
