package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// Addresses of the network: the hub is this process.
const (
	HubIP   = "10.77.0.1"
	hubName = "hub"
	ipFirst = 11
	hostMax = 240
)

// hostIP is the address of the host that was plugged in after so many others.
func hostIP(others int) string { return fmt.Sprintf("10.77.0.%d", ipFirst+others) }

// Network joins the members: a bridge, which is also the interface of this
// process, and a cable to the namespace of each member.
type Network struct {
	mu    sync.Mutex
	hosts []string     // names of namespaces
	lost  map[pair]int // how many cuts are in force
}

// pair is a sender and a receiver, by name.
type pair struct{ from, to string }

func newNetwork() (*Network, error) {
	err := tool("", fmt.Sprintf("link add %[1]s type bridge\naddr add %[2]s/24 dev %[1]s\nlink set %[1]s up\n", hubName, HubIP),
		"ip", "-batch", "-")
	if err != nil {
		return nil, fmt.Errorf("make the network: is another cluster running in this process? %w", err)
	}
	return &Network{lost: make(map[pair]int)}, nil
}

// netns is the file of a member's network namespace.
func netns(name string) string { return filepath.Join("/run/netns", name) }

// filter drops what arrives from those who are in the set. Dropping where it is
// sent would tell the sender, whose calls would fail.
const filter = `table inet partition {
	set lost { type ipv4_addr; }
	counter dropped { }
	chain arrive {
		type filter hook input priority -300;
		ip saddr @lost counter name dropped drop
	}
}
`

// plug adds a host and returns its address.
func (n *Network) plug(name string) (ip string, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	number := len(n.hosts)
	if number == hostMax {
		return "", errors.New("the network is full")
	}
	if err := tool("", "", "ip", "netns", "add", name); err != nil {
		return "", err
	}
	n.hosts = append(n.hosts, name)
	ip = hostIP(number)
	port := portOf(number)
	err = tool("", fmt.Sprintf("link add %[1]s type veth peer name eth0 netns %[2]s\nlink set %[1]s master %[3]s up\n", port, name, hubName),
		"ip", "-batch", "-")
	if err == nil {
		err = tool("", fmt.Sprintf("link set lo up\naddr add %s/24 dev eth0\nlink set eth0 up\n", ip), "ip", "-n", name, "-batch", "-")
	}
	if err == nil {
		err = tool(netns(name), filter, "nft", "-f", "-")
	}
	return ip, err
}

// portOf is the hub's end of the cable of a host.
func portOf(number int) string { return fmt.Sprintf("port%d", number) }

// Cut loses everything that is sent from one of the first to one of the second.
// Packets the other way still arrive. A member does not lose what it sends to
// itself. Cuts add up: each has to be mended.
func (n *Network) Cut(from, to []*Member) error {
	return n.each(from, to, func(p pair) string {
		if n.lost[p]++; n.lost[p] == 1 {
			return "add"
		}
		return ""
	})
}

// Mend ends one Cut of the same members.
func (n *Network) Mend(from, to []*Member) error {
	return n.each(from, to, func(p pair) string {
		switch n.lost[p] {
		case 0:
			return "" // healed already
		case 1:
			delete(n.lost, p)
			return "delete"
		}
		n.lost[p]--
		return ""
	})
}

// Isolate cuts both ways.
func (n *Network) Isolate(a, b []*Member) error {
	return errors.Join(n.Cut(a, b), n.Cut(b, a))
}

// each changes the sets of the receivers: change says whether a sender is to be
// added or deleted.
func (n *Network) each(from, to []*Member, change func(pair) string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	var errs []error
	for _, receiver := range to {
		var script strings.Builder
		for _, sender := range from {
			if sender == receiver {
				continue
			}
			if verb := change(pair{sender.Name, receiver.Name}); verb != "" {
				fmt.Fprintf(&script, "%s element inet partition lost { %s }\n", verb, sender.IP)
			}
		}
		if script.Len() > 0 {
			errs = append(errs, tool(netns(receiver.Name), script.String(), "nft", "-f", "-"))
		}
	}
	return errors.Join(errs...)
}

// Heal ends all cuts.
func (n *Network) Heal() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	clear(n.lost)
	var errs []error
	for _, name := range n.hosts {
		errs = append(errs, tool(netns(name), "", "nft", "flush", "set", "inet", "partition", "lost"))
	}
	return errors.Join(errs...)
}

// Dropped is how many packets have been lost to cuts since the network began.
func (n *Network) Dropped() (packets uint64, err error) {
	n.mu.Lock()
	hosts := slices.Clone(n.hosts)
	n.mu.Unlock()
	for _, name := range hosts {
		at, err := dropped(name)
		if err != nil {
			return 0, err
		}
		packets += at
	}
	return packets, nil
}

// dropped is how many packets one host has dropped.
func dropped(name string) (packets uint64, err error) {
	raw, err := output(netns(name), "", "nft", "-j", "list", "counter", "inet", "partition", "dropped")
	if err != nil {
		return 0, err
	}
	var list struct {
		Nftables []struct{ Counter *struct{ Packets uint64 } }
	}
	if err := json.Unmarshal(raw, &list); err != nil {
		return 0, fmt.Errorf("read counter of %s: %w", name, err)
	}
	for _, item := range list.Nftables {
		if item.Counter != nil {
			return item.Counter.Packets, nil
		}
	}
	return 0, fmt.Errorf("read counter of %s: there is none", name)
}

// close removes hosts and hub. The kernel takes its time to remove the interfaces
// of a namespace, so the cables are removed first, which is done when it returns.
func (n *Network) close() error {
	var errs []error
	for i, name := range n.hosts {
		errs = append(errs, tool("", "", "ip", "link", "del", portOf(i)), tool("", "", "ip", "netns", "del", name))
	}
	return errors.Join(append(errs, tool("", "", "ip", "link", "del", hubName))...)
}
