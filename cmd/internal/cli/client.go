package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"rota/api/client"
	rotav1 "rota/api/gen/rota/v1"
	"rota/api/pki"
	"rota/api/rights"
)

// dial prepares calls to the servers of --addr.
func (a *app) dial() (*client.Client, error) {
	c, err := a.dialTo(a.settings.addr)
	if err == nil && a.settings.cluster != "" {
		a.compareCluster(c)
	}
	return c, err
}

// compareCluster warns if the servers are of another cluster than the one that is meant. A
// server that does not answer says so to the command itself.
func (a *app) compareCluster(c *client.Client) {
	ctx, cancel := context.WithTimeout(context.Background(), min(a.settings.timeout, 2*time.Second))
	defer cancel()
	s, err := c.Operator.GetStatus(ctx, &rotav1.GetStatusRequest{})
	if err == nil && s.ClusterId != a.settings.cluster {
		a.say("warning: this is cluster %s, and --cluster-id says %s", s.ClusterId, a.settings.cluster)
	}
}

// with is what a command does with a client of the cluster.
func (a *app) with(do func(ctx context.Context, c *client.Client, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		c, err := a.dial()
		if err != nil {
			return err
		}
		return do(cmd.Context(), c, args)
	}
}

// withID is what a command does with a client of the cluster and an ID, its argument.
func (a *app) withID(do func(ctx context.Context, c *client.Client, id uint64) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		id, err := parseID(args[0])
		if err != nil {
			return err
		}
		return a.with(func(ctx context.Context, c *client.Client, _ []string) error { return do(ctx, c, id) })(cmd, args)
	}
}

// dialTo prepares calls to the given servers. The client library waits for a
// cluster that is between leaders; if no process listens at all, a person wants
// to know at once, so that is checked here.
func (a *app) dialTo(addrs string) (*client.Client, error) {
	hosts, err := splitAddrs(addrs)
	if err != nil {
		return nil, err
	}
	if hosts, err = reachableFirst(hosts, dialStagger, dialTCP); err != nil {
		return nil, err
	}
	config := client.Config{Addrs: hosts, Namespace: a.settings.namespace, RetryFor: a.settings.timeout, Waiting: a.sayWaiting}
	if files := a.settings.tlsFiles(); files.Enabled() {
		if config.TLS, err = pki.ClientConfig(files, pki.RoleServer); err != nil {
			return nil, err
		}
	}
	config.Token = func() (string, error) { return rights.FromEnvironment(a.settings.tokenFile) }
	return client.New(config)
}

// sayWaiting says at once why there is no answer yet, and how long the client tries.
func (a *app) sayWaiting(reason string) {
	a.say("%s; trying again for up to %v", strings.TrimSuffix(reason, "."), a.settings.timeout)
}

// say writes a line about a command that is under way. It may be called by any
// goroutine.
func (a *app) say(format string, args ...any) {
	a.saying.Lock()
	defer a.saying.Unlock()
	fmt.Fprintf(a.err, "rota: %s\n", printableLines(fmt.Sprintf(format, args...)))
}

func splitAddrs(addrs string) ([]string, error) {
	var hosts []string
	for _, addr := range strings.Split(addrs, ",") {
		if addr = strings.TrimSpace(addr); addr == "" {
			continue
		}
		if _, _, err := net.SplitHostPort(addr); err != nil {
			return nil, usageErrorf("--addr: %q is not host:port", addr)
		}
		hosts = append(hosts, addr)
	}
	if len(hosts) == 0 {
		return nil, usageErrorf("--addr is empty; give the host:port of a server")
	}
	return hosts, nil
}

// errNoServer means that no process listens at any of the addresses.
var errNoServer = errors.New("no server answers")

const (
	// dialTimeout is how long a host may take to accept a connection.
	dialTimeout = 3 * time.Second
	// dialStagger is after how long without an answer the next host is tried too.
	dialStagger = 250 * time.Millisecond
)

func dialTCP(ctx context.Context, host string) error {
	c, err := (&net.Dialer{Timeout: dialTimeout}).DialContext(ctx, "tcp", host)
	if err != nil {
		return err
	}
	return c.Close()
}

// reachableFirst returns the hosts with the one in front that accepts a connection first. Hosts are tried
// in their order, the next one as soon as those before it have failed or have been silent for a
// while (RFC 8305): a host that is off must not cost each command seconds.
func reachableFirst(hosts []string, stagger time.Duration, dial func(ctx context.Context, host string) error) ([]string, error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	type answer struct {
		at  int
		err error
	}
	answers := make(chan answer, len(hosts))
	var last error
	for tried, failed := 0, 0; failed < len(hosts); {
		var next <-chan time.Time // of the next host
		switch {
		case tried == failed: // none is under way
			next = time.After(0)
		case tried < len(hosts):
			next = time.After(stagger)
		}
		select {
		case a := <-answers:
			if a.err == nil {
				return slices.Concat(hosts[a.at:a.at+1], hosts[:a.at], hosts[a.at+1:]), nil
			}
			failed++
			last = a.err
		case <-next:
			at := tried
			tried++
			go func() { answers <- answer{at, dial(ctx, hosts[at])} }()
		}
	}
	return nil, &codeError{exitUnavailable, fmt.Errorf("%w at %s: %w\n"+
		"Set --addr or ROTA_ADDR to a server, or start a trial cluster: rota dev",
		errNoServer, strings.Join(hosts, ","), last)}
}

func (s *settings) tlsFiles() pki.Files { return pki.Files{CA: s.ca, Cert: s.cert, Key: s.key} }

// call makes one request, repeated by the client library where that is safe,
// within the request timeout.
func call[Req, Resp any](ctx context.Context, a *app,
	method func(context.Context, *Req) (*Resp, error), req *Req) (*Resp, error) {
	ctx, cancel := context.WithTimeout(ctx, a.settings.timeout)
	defer cancel()
	if a.stale {
		allowStale(req)
	}
	resp, err := method(ctx, req)
	if err != nil && ctx.Err() == context.DeadlineExceeded && connect.CodeOf(err) == connect.CodeUnknown {
		err = connect.NewError(connect.CodeDeadlineExceeded, err)
	}
	return resp, err
}

// pages calls a method that lists with one request after the other, until it has all
// pages. The token is that of the request.
func pages[Req, Resp any, Page interface {
	*Resp
	GetNextPageToken() string
}](ctx context.Context, a *app, method func(context.Context, *Req) (*Resp, error), req *Req, token *string, take func(Page)) error {
	for {
		page, err := call(ctx, a, method, req)
		if err != nil {
			return err
		}
		take(page)
		if *token = Page(page).GetNextPageToken(); *token == "" {
			return nil
		}
	}
}

// reads is for commands that show state. With --stale they read the state of one server
// and need no leader.
func (a *app) reads(cmd *cobra.Command) *cobra.Command {
	cmd.Flags().BoolVar(&a.stale, "stale", false, "accept possibly older state from the server that answers; works without a leader")
	return cmd
}

// allowStale sets the field of that name, which every request of a command that reads has.
func allowStale(req any) {
	m := req.(proto.Message).ProtoReflect()
	m.Set(m.Descriptor().Fields().ByName("allow_stale"), protoreflect.ValueOfBool(true))
}
