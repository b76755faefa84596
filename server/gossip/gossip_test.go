package gossip

import (
	"bytes"
	"encoding/base64"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/memberlist"
	"go.uber.org/goleak"

	"rota/api/pki"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var testKey = bytes.Repeat([]byte{7}, keyBytes)

// quick makes memberlist as fast as one machine allows, and turns off what
// could bring members together besides joins.
func quick(conf *memberlist.Config) {
	conf.ProbeInterval, conf.ProbeTimeout = 100*time.Millisecond, 50*time.Millisecond
	conf.GossipInterval = 20 * time.Millisecond
	conf.SuspicionMult, conf.SuspicionMaxTimeoutMult = 2, 1
	conf.GossipToTheDeadTime = time.Nanosecond
	conf.PushPullInterval = 0
}

func config(name string, seeds ...string) Config {
	return Config{
		ClusterName:    "test",
		Name:           name,
		Meta:           Member{Role: RoleServer, Addr: name + ":7400"},
		Bind:           "127.0.0.1:0",
		Keys:           [][]byte{testKey},
		Seeds:          seeds,
		RejoinInterval: 100 * time.Millisecond,
		Logger:         hclog.NewNullLogger(),
	}
}

func run(t *testing.T, c Config) *Gossip {
	t.Helper()
	g, err := start(c, quick)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Stop)
	return g
}

func names(g *Gossip) string {
	var all []string
	for _, m := range g.Members() {
		all = append(all, m.Name)
	}
	return strings.Join(all, " ")
}

// sees waits until the members are as wanted, by the notification of changes.
func sees(t *testing.T, g *Gossip, want string) {
	t.Helper()
	deadline := time.After(time.Minute)
	for names(g) != want {
		select {
		case <-g.Changes():
		case <-deadline:
			t.Fatalf("sees %q, want %q", names(g), want)
		}
	}
}

func TestThreeFindEachOtherThroughOne(t *testing.T) {
	a := run(t, config("a"))
	b := run(t, config("b", a.Addr()))
	agentConf := config("c", a.Addr())
	agentConf.Meta = Member{Role: RoleAgent, Addr: "c:7410"}
	c := run(t, agentConf)
	for _, g := range []*Gossip{a, b, c} {
		sees(t, g, "a b c")
		if got := g.Servers(); !slices.Equal(got, []string{"a:7400", "b:7400"}) {
			t.Errorf("servers: %q", got)
		}
		if got := g.Members()[2]; got != (Member{Name: "c", Role: RoleAgent, Addr: "c:7410"}) {
			t.Errorf("the agent: %+v", got)
		}
	}
	c.Stop()
	sees(t, a, "a b")
	sees(t, b, "a b")
}

func TestASeedMayStartLater(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	l.Close()
	b := run(t, config("b", addr))
	c := config("a", addr) // its own address among the seeds does no harm
	c.Bind = addr
	a := run(t, c)
	sees(t, a, "a b")
	sees(t, b, "a b")
}

// joins tries to join directly, so that a refusal is seen and not awaited.
// A member that has found one seed must not wait for long for the others: the
// one may be about to fail, and have told it of nobody.
func TestTheOtherSeedsAreTriedAgainSoon(t *testing.T) {
	first := run(t, config("first"))
	late, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := late.Addr().String()
	late.Close()
	c := config("both", first.Addr(), address)
	c.RejoinInterval = time.Hour
	both := run(t, c)
	sees(t, both, "both first")
	c = config("late")
	c.Bind = address
	run(t, c)
	sees(t, both, "both first late")
}

func joins(t *testing.T, g *Gossip, other string) error {
	t.Helper()
	_, err := g.list.Join([]string{other})
	return err
}

func TestStrangersGetNothing(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"another key":     func(c *Config) { c.Keys = [][]byte{bytes.Repeat([]byte{8}, keyBytes)} },
		"no key":          func(c *Config) { c.Keys = nil },
		"another cluster": func(c *Config) { c.ClusterName = "other" },
	} {
		t.Run(name, func(t *testing.T) {
			a := run(t, config("a"))
			c := config("stranger")
			change(&c)
			stranger := run(t, c)
			if joins(t, stranger, a.Addr()) == nil {
				t.Error("the stranger joined")
			}
			if joins(t, a, stranger.Addr()) == nil {
				t.Error("we joined the stranger")
			}
			// A friend still can; by then a has dealt with the stranger.
			run(t, config("b", a.Addr()))
			sees(t, a, "a b")
			if got := names(stranger); got != "stranger" {
				t.Errorf("the stranger sees %q", got)
			}
		})
	}
}

func TestMetadataOfAnotherClusterIsRefused(t *testing.T) {
	g := run(t, config("a"))
	encode := func(cluster string) []byte {
		b, err := encodeMeta(cluster, Member{Role: RoleServer, Addr: "x:1"})
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	ours := &memberlist.Node{Name: "ours", Meta: encode("test")}
	for name, theirs := range map[string]*memberlist.Node{
		"other":   {Name: "x", Meta: encode("other")},
		"garbage": {Name: "x", Meta: []byte("{")},
		"none":    {Name: "x"},
	} {
		if err := g.NotifyAlive(theirs); !errors.Is(err, ErrCluster) {
			t.Errorf("%s: alive: %v", name, err)
		}
		if err := g.NotifyMerge([]*memberlist.Node{ours, theirs}); !errors.Is(err, ErrCluster) {
			t.Errorf("%s: merge: %v", name, err)
		}
		theirs.State = memberlist.StateDead
		if err := g.NotifyMerge([]*memberlist.Node{ours, theirs}); err != nil {
			t.Errorf("%s: a dead member blocks a merge: %v", name, err)
		}
	}
	if err := g.NotifyAlive(ours); err != nil {
		t.Error(err)
	}
}

// fence is a network that can be cut.
type fence struct {
	*memberlist.NetTransport
	cut *atomic.Bool
}

var errCut = errors.New("network is cut")

func (f fence) WriteTo(b []byte, addr string) (time.Time, error) {
	return f.WriteToAddress(b, memberlist.Address{Addr: addr})
}

func (f fence) WriteToAddress(b []byte, a memberlist.Address) (time.Time, error) {
	if f.cut.Load() {
		return time.Now(), nil // as UDP does
	}
	return f.NetTransport.WriteToAddress(b, a)
}

func (f fence) DialTimeout(addr string, timeout time.Duration) (net.Conn, error) {
	return f.DialAddressTimeout(memberlist.Address{Addr: addr}, timeout)
}

func (f fence) DialAddressTimeout(a memberlist.Address, timeout time.Duration) (net.Conn, error) {
	if f.cut.Load() {
		return nil, errCut
	}
	return f.NetTransport.DialAddressTimeout(a, timeout)
}

func TestAPartitionThatLastedHealsByRejoining(t *testing.T) {
	var cut atomic.Bool
	fenced := func(c Config) *Gossip {
		g, err := start(c, func(conf *memberlist.Config) {
			quick(conf)
			inner, err := memberlist.NewNetTransport(&memberlist.NetTransportConfig{
				BindAddrs: []string{"127.0.0.1"}, Logger: conf.Logger})
			if err != nil {
				t.Fatal(err)
			}
			conf.Transport = fence{inner, &cut}
			conf.BindPort, conf.AdvertisePort = inner.GetAutoBindPort(), inner.GetAutoBindPort()
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(g.Stop)
		return g
	}
	a := fenced(config("a"))
	b := fenced(config("b", a.Addr()))
	sees(t, a, "a b")
	sees(t, b, "a b")

	cut.Store(true)
	sees(t, a, "a")
	sees(t, b, "b")

	cut.Store(false)
	sees(t, a, "a b")
	sees(t, b, "a b")
}

func TestBadConfigurationsAreExplained(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*Config)
		want   error // nil: any
	}{
		{"open without a key", func(c *Config) { c.Keys, c.Bind = nil, "0.0.0.0:0" }, ErrNoKey},
		{"every interface without a key", func(c *Config) { c.Keys, c.Bind = nil, ":0" }, ErrNoKey},
		{"advertised without a key", func(c *Config) { c.Keys, c.Advertise = nil, "10.0.0.1:7401" }, ErrNoKey},
		{"short key", func(c *Config) { c.Keys = [][]byte{[]byte("secret")} }, ErrKey},
		{"AES-128 key", func(c *Config) { c.Keys = [][]byte{testKey[:16]} }, ErrKey},
		{"no cluster", func(c *Config) { c.ClusterName = "" }, nil},
		{"no role", func(c *Config) { c.Meta.Role = "" }, nil},
		{"client role", func(c *Config) { c.Meta.Role = "client" }, nil},
		{"long address", func(c *Config) { c.Meta.Addr = strings.Repeat("x", 600) }, nil},
		{"no port", func(c *Config) { c.Bind = "127.0.0.1" }, nil},
		{"bad network", func(c *Config) { c.AllowedNetworks = []string{"10.0.0.0/33"} }, nil},
	} {
		conf := config("a")
		c.change(&conf)
		g, err := Start(conf)
		if err == nil {
			g.Stop()
			t.Errorf("%s: accepted", c.name)
		} else if c.want != nil && !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
}

func TestLoopbackNeedsNoKeyEvenByName(t *testing.T) {
	c := config("a")
	c.Keys, c.Bind = nil, "localhost:0"
	g := run(t, c)
	host, _, err := net.SplitHostPort(g.Addr())
	if err != nil || !net.ParseIP(host).IsLoopback() {
		t.Errorf("bound %s, %v", g.Addr(), err)
	}
}

func TestKeysAreReadFromAFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "key")
	for text, want := range map[string]error{
		base64.StdEncoding.EncodeToString(testKey) + "\n": nil,
		base64.StdEncoding.EncodeToString(testKey[:16]):   ErrKey,
		"not base64!": ErrKey,
		"":            ErrKey,
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		keys, err := LoadKeys(path)
		if !errors.Is(err, want) || want == nil && (len(keys) != 1 || !bytes.Equal(keys[0], testKey)) {
			t.Errorf("%q: %v, %v", text, keys, err)
		}
	}
	if _, err := LoadKeys(path + ".absent"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("absent: %v", err)
	}
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadKeys(path); !errors.Is(err, pki.ErrExposed) {
		t.Errorf("a key that others can read: %v", err)
	}
}
