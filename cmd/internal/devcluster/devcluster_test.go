package devcluster

import (
	"net"
	"strings"
	"testing"
)

func TestPlan(t *testing.T) {
	c, err := plan(Config{Binary: "rota", Dir: "/data", Servers: 3, Agents: 1})
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, p := range c.all() {
		if seen[p.Addr] {
			t.Errorf("%s twice", p.Addr)
		}
		seen[p.Addr] = true
	}
	args := strings.Join(c.Servers[1].Args, " ")
	for _, want := range []string{"server --id server-2", "server-1=" + c.Servers[0].Addr, "--listen " + c.Servers[1].Addr} {
		if !strings.Contains(args, want) {
			t.Errorf("no %q in %q", want, args)
		}
	}
}

// The port of a server that was killed must not become somebody's connection.
func TestFreePorts(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	if checkFree(taken.Addr().(*net.TCPAddr).Port) == nil {
		t.Error("a port that somebody listens on counts as free")
	}
	seen := map[int]bool{}
	for range 20 {
		list, err := FreePorts(3)
		if err != nil {
			t.Fatal(err)
		}
		for _, port := range list {
			if seen[port] || port < portMin || port >= portMax {
				t.Errorf("port %d", port)
			}
			seen[port] = true
		}
	}
	if len(seen) != 60 {
		t.Errorf("%d ports, want 60", len(seen))
	}
}
