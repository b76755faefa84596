package gossip

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/memberlist"
)

const (
	// keyBytes selects AES-256.
	keyBytes = 32
	// rejoinInterval is how often seeds that are not members are tried.
	rejoinInterval = 10 * time.Second
	// firstInterval is the same before there is any other member.
	firstInterval = time.Second
	// streamTimeout bounds one exchange of the whole member list over TCP.
	streamTimeout = 3 * time.Second
	// leaveTimeout is how long Stop waits for the goodbye to go out.
	leaveTimeout = time.Second
)

// Errors of a configuration, one for each fact.
var (
	// ErrNoKey: anybody who reaches the port could pose as a server.
	ErrNoKey = errors.New("refusing to gossip without a key on an address that other machines reach: " +
		"give a key, or use 127.0.0.1")
	// ErrKey: the key is not one.
	ErrKey = errors.New("a gossip key is 32 random bytes in base64: make one with `(umask 077; head -c 32 /dev/urandom | base64 > gossip.key)`")
	// ErrCluster: a member of another cluster.
	ErrCluster = errors.New("member belongs to another cluster")
)

// Config says who we are and whom to look for.
type Config struct {
	// ClusterName separates clusters that could reach each other: 1 to 128 bytes.
	ClusterName string
	// Name is unique in the cluster.
	Name string
	// Meta is what others learn about us. Its Name is ignored.
	Meta Member
	// Bind is the address to listen on, UDP and TCP, as host:port.
	Bind string
	// Advertise is the address that others use, if it is not Bind.
	Advertise string
	// Keys encrypt and authenticate everything, the first what is sent: 32 bytes each.
	// KeyFile is the file that they are from; it is read again, so that keys change without
	// a restart. KeyInterval is how often; 0 means 2 s. Without keys, both
	// addresses must be loopback.
	Keys        [][]byte
	KeyFile     string
	KeyInterval time.Duration
	// Seeds are addresses of members to join, as host:port; it does no harm if
	// our own is among them.
	Seeds []string
	// AllowedNetworks are the networks that members may be in, as CIDRs; all if
	// empty.
	AllowedNetworks []string
	// RejoinInterval is how often seeds that are not members are tried; 0 means
	// 10 s.
	RejoinInterval time.Duration
	Logger         hclog.Logger
}

// Gossip is our membership.
type Gossip struct {
	list    *memberlist.Memberlist
	cluster string
	seeds   []string
	every   time.Duration
	logger  hclog.Logger
	changes chan struct{}
	ring    *memberlist.Keyring // nil without keys
	keyFile string
	keysMu  sync.Mutex // orders changes of the ring and its file
	// strangers is what memberlist logs to.
	strangers *strangers

	stop context.CancelFunc
	once sync.Once
	wg   sync.WaitGroup
}

// Start listens and keeps looking for the seeds until Stop. It does not wait
// for any of them.
func Start(c Config) (*Gossip, error) {
	return start(c, func(*memberlist.Config) {})
}

// start also lets a test change the timing and the network.
func start(c Config, tune func(*memberlist.Config)) (*Gossip, error) {
	g := &Gossip{
		cluster: c.ClusterName,
		seeds:   c.Seeds,
		every:   c.RejoinInterval,
		logger:  c.Logger.Named("gossip"),
		changes: make(chan struct{}, 1),
		keyFile: c.KeyFile,
	}
	g.strangers = newStrangers(g.logger)
	if g.every == 0 {
		g.every = rejoinInterval
	}
	conf, err := g.config(c)
	if err != nil {
		return nil, fmt.Errorf("gossip: %w", err)
	}
	tune(conf)
	if conf.Transport == nil {
		if conf.Transport, err = g.listen(conf); err != nil {
			return nil, fmt.Errorf("gossip on %s: %w", c.Bind, err)
		}
	}
	if g.list, err = memberlist.Create(conf); err != nil {
		return nil, errors.Join(fmt.Errorf("gossip on %s: %w", c.Bind, err), conf.Transport.Shutdown())
	}
	ctx, cancel := context.WithCancel(context.Background())
	g.stop = cancel
	g.wg.Go(func() { g.rejoin(ctx) })
	if c.KeyFile != "" {
		g.wg.Go(func() { g.watchKeys(ctx, cmp.Or(c.KeyInterval, keysInterval)) })
	}
	return g, nil
}

// config translates ours to memberlist's.
func (g *Gossip) config(c Config) (*memberlist.Config, error) {
	meta, err := encodeMeta(c.ClusterName, c.Meta)
	if err != nil {
		return nil, err
	}
	bind, advertise, err := addresses(c)
	if err != nil {
		return nil, err
	}
	conf := memberlist.DefaultLANConfig()
	conf.Name = c.Name
	conf.Label = c.ClusterName
	if len(c.Keys) > 0 {
		if g.ring, err = memberlist.NewKeyring(c.Keys, c.Keys[0]); err != nil {
			return nil, err
		}
		conf.Keyring = g.ring
	}
	conf.BindAddr, conf.BindPort = bind.IP.String(), bind.Port
	conf.AdvertisePort = bind.Port
	if advertise != nil {
		conf.AdvertiseAddr, conf.AdvertisePort = advertise.IP.String(), advertise.Port
	}
	networks := c.AllowedNetworks
	if len(c.Keys) == 0 {
		networks = []string{"127.0.0.0/8", "::1/128"}
	}
	if len(networks) > 0 {
		if conf.CIDRsAllowed, err = memberlist.ParseCIDRs(networks); err != nil {
			return nil, err
		}
	}
	conf.TCPTimeout = streamTimeout
	conf.DeadNodeReclaimTime = 0
	conf.Delegate = metaDelegate(meta)
	conf.Alive, conf.Merge, conf.Events = g, g, g
	conf.Logger = log.New(g.strangers, "", 0)
	return conf, nil
}

// listen opens the ports, and tells the configuration which.
func (g *Gossip) listen(conf *memberlist.Config) (memberlist.Transport, error) {
	t, err := newTransport(&net.TCPAddr{IP: net.ParseIP(conf.BindAddr), Port: conf.BindPort}, conf, g.strangers)
	if err != nil {
		return nil, err
	}
	if conf.AdvertisePort == conf.BindPort {
		conf.AdvertisePort = t.GetAutoBindPort()
	}
	conf.BindPort = t.GetAutoBindPort()
	return t, nil
}

// addresses resolves what to bind and to advertise, and refuses to do so in
// the open without a key. The second is nil for the same as the first.
func addresses(c Config) (bind, advertise *net.TCPAddr, err error) {
	if slices.ContainsFunc(c.Keys, func(k []byte) bool { return len(k) != keyBytes }) {
		return nil, nil, ErrKey
	}
	// memberlist binds every interface if it is given a name instead of an IP.
	if bind, err = net.ResolveTCPAddr("tcp", c.Bind); err != nil {
		return nil, nil, err
	}
	if bind.IP == nil {
		bind.IP = net.IPv4zero
	}
	if c.Advertise != "" {
		if advertise, err = net.ResolveTCPAddr("tcp", c.Advertise); err != nil {
			return nil, nil, err
		}
	}
	open := !bind.IP.IsLoopback() || advertise != nil && !advertise.IP.IsLoopback()
	if open && len(c.Keys) == 0 {
		return nil, nil, fmt.Errorf("%s: %w", c.Bind, ErrNoKey)
	}
	return bind, advertise, nil
}

// Addr is the address that others use, as host:port.
func (g *Gossip) Addr() string { return g.list.LocalNode().Address() }

// Members are those that are thought to be alive, ourselves among them, by
// name.
func (g *Gossip) Members() []Member {
	var members []Member
	for _, node := range g.list.Members() {
		if m, err := g.member(node); err == nil {
			members = append(members, m)
		}
	}
	slices.SortFunc(members, func(a, b Member) int { return strings.Compare(a.Name, b.Name) })
	return members
}

// Servers are the addresses of the servers among the members.
func (g *Gossip) Servers() []string {
	var addrs []string
	for _, m := range g.Members() {
		if m.Role == RoleServer {
			addrs = append(addrs, m.Addr)
		}
	}
	return addrs
}

// Changes receives something after members have come, gone or changed. Many
// changes may become one; it is made for one receiver.
func (g *Gossip) Changes() <-chan struct{} { return g.changes }

// Stop says goodbye, so that others need not wonder, and stops listening.
func (g *Gossip) Stop() {
	g.once.Do(func() {
		g.stop()
		if err := g.list.Leave(leaveTimeout); err != nil {
			g.logger.Debug("left without a goodbye", "error", err)
		}
		if err := g.list.Shutdown(); err != nil {
			g.logger.Warn("cannot stop", "error", err)
		}
		g.wg.Wait()
		g.strangers.stop()
	})
}
