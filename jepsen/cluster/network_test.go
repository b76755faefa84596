package cluster

import (
	"fmt"
	"net"
	"os"
	"strings"
	"testing"

	"rota/internal/process"
)

// Both ends of a conversation between hosts, over UDP.
const (
	hearHelper, sayHelper = "hear", "say"
	talkPort              = ":9000"
)

// hear writes a line for each packet that arrives: its sender and what it says.
func hear() int {
	conn, err := net.ListenPacket("udp4", talkPort)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println("ready")
	buf := make([]byte, 100)
	for {
		n, from, err := conn.ReadFrom(buf)
		if err != nil {
			fmt.Println(err)
			return 1
		}
		fmt.Println(from.(*net.UDPAddr).IP, string(buf[:n]))
	}
}

// say sends the first argument to all hosts that follow.
func say() int {
	for _, to := range os.Args[2:] {
		conn, err := net.Dial("udp4", to+talkPort)
		if err == nil {
			_, err = conn.Write([]byte(os.Args[1]))
		}
		if err != nil {
			fmt.Println(err)
			return 1
		}
	}
	return 0
}

// party is a network of hosts that hear everything.
type party struct {
	*testing.T
	*Network
	hosts []*Member
	ears  []*process.Process
	said  int
}

func newParty(t *testing.T, size int) *party {
	t.Helper()
	isolated(t)
	n, err := newNetwork()
	if err != nil {
		t.Fatal(err)
	}
	p := &party{T: t, Network: n}
	t.Cleanup(func() {
		for _, ear := range p.ears {
			ear.Kill()
		}
		if err := n.close(); err != nil {
			t.Error(err)
		}
	})
	for i := range size {
		name := fmt.Sprint("host-", i)
		ip, err := n.plug(name)
		if err != nil {
			t.Fatal(err)
		}
		ear := process.New(name, "", t.TempDir(), "/proc/self/exe")
		ear.Env, ear.Netns = []string{helperVariable + "=" + hearHelper}, netns(name)
		if err := ear.Start(); err != nil {
			t.Fatal(err)
		}
		p.hosts = append(p.hosts, &Member{Process: ear, IP: ip})
		p.ears = append(p.ears, ear)
	}
	for _, h := range p.hosts {
		(&world{T: t}).until(h.Name+" listens", func() bool { return strings.Contains(p.heard(h), "ready") })
	}
	return p
}

func (p *party) heard(h *Member) string {
	p.Helper()
	text, err := h.Log()
	if err != nil {
		p.Fatal(err)
	}
	return text
}

// connected checks who hears whom: everybody but the given pairs, "0>1".
func (p *party) connected(except ...string) {
	p.Helper()
	p.said++
	word := fmt.Sprint("word-", p.said, ".")
	before, err := p.Dropped()
	if err != nil {
		p.Fatal(err)
	}
	for _, from := range p.hosts {
		args := []string{word}
		for _, to := range p.hosts {
			if to != from {
				args = append(args, to.IP)
			}
		}
		mouth := process.New("mouth", "", p.TempDir(), "/proc/self/exe", args...)
		mouth.Env, mouth.Netns = []string{helperVariable + "=" + sayHelper}, from.Netns
		if err := mouth.Start(); err != nil {
			p.Fatal(err)
		}
		if <-mouth.Done(); mouth.Err() != nil {
			p.Fatal(mouth.Ended())
		}
	}
	want := len(except)
	(&world{T: p.T}).until("all packets have arrived or were dropped", func() bool {
		after, err := p.Dropped()
		return err == nil && int(after-before) >= want
	})
	for i, from := range p.hosts {
		for j, to := range p.hosts {
			cut := strings.Contains(" "+strings.Join(except, " ")+" ", fmt.Sprintf(" %d>%d ", i, j))
			if i == j {
				continue
			}
			line := from.IP + " " + word
			if !cut {
				(&world{T: p.T}).until(fmt.Sprintf("%d hears %d", j, i), func() bool { return strings.Contains(p.heard(to), line) })
			} else if strings.Contains(p.heard(to), line) {
				p.Errorf("%d hears %d, from whom it is cut off", j, i)
			}
		}
	}
}

func TestPartitions(t *testing.T) {
	p := newParty(t, 3)
	a, b, c := p.hosts[:1], p.hosts[1:2], p.hosts[2:]
	all := p.hosts
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	p.connected()
	must(p.Cut(a, b))
	p.connected("0>1")
	must(p.Isolate(a, all))
	p.connected("0>1", "0>2", "1>0", "2>0")
	must(p.Mend(a, b)) // of two that are in force
	p.connected("0>1", "0>2", "1>0", "2>0")
	must(p.Mend(a, all))
	must(p.Mend(all, a))
	p.connected()
	must(p.Isolate(all[:2], c))
	p.connected("0>2", "1>2", "2>0", "2>1")
	must(p.Heal())
	p.connected()
	must(p.Mend(c, all[:2])) // has been healed
	must(p.Cut(c, a))
	p.connected("2>0")
}
