package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"connectrpc.com/connect"

	"rota/api/client"
	"rota/api/pki"
)

// dial prepares calls to the servers of --addr.
func (a *app) dial() (*client.Client, error) { return a.dialTo(a.settings.addr) }

// dialTo prepares calls to the given servers. The client library waits for a
// cluster that is between leaders; if no process listens at all, a person wants
// to know at once, so that is checked here.
func (a *app) dialTo(addrs string) (*client.Client, error) {
	hosts, err := splitAddrs(addrs)
	if err != nil {
		return nil, err
	}
	if err := reachable(hosts); err != nil {
		return nil, err
	}
	config := client.Config{Addrs: hosts, Namespace: a.settings.namespace, RetryFor: a.settings.timeout}
	if files := a.settings.tlsFiles(); files.Enabled() {
		if config.TLS, err = pki.ClientConfig(files, pki.RoleServer); err != nil {
			return nil, err
		}
	}
	return client.New(config)
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
		return nil, usageErrorf("--addr is empty; give host:port of a server")
	}
	return hosts, nil
}

// errNoServer: nothing listens at any of the addresses.
var errNoServer = errors.New("no server answers")

// reachable returns nil if any host accepts a connection.
func reachable(hosts []string) error {
	var last error
	for _, host := range hosts {
		c, err := net.DialTimeout("tcp", host, 3*time.Second)
		if err == nil {
			return c.Close()
		}
		last = err
	}
	return &codeError{exitUnavailable, fmt.Errorf("%w at %s: %w\n"+
		"Set --addr or ROTA_ADDR to a server, or start a cluster to play with: rota dev",
		errNoServer, strings.Join(hosts, ","), last)}
}

func (s *settings) tlsFiles() pki.Files { return pki.Files{CA: s.ca, Cert: s.cert, Key: s.key} }

// call makes one request, repeated by the client library where that is safe,
// within the request timeout.
func call[Req, Resp any](ctx context.Context, a *app,
	method func(context.Context, *Req) (*Resp, error), req *Req) (*Resp, error) {
	ctx, cancel := context.WithTimeout(ctx, a.settings.timeout)
	defer cancel()
	resp, err := method(ctx, req)
	if err != nil && ctx.Err() == context.DeadlineExceeded && connect.CodeOf(err) == connect.CodeUnknown {
		err = connect.NewError(connect.CodeDeadlineExceeded, err)
	}
	return resp, err
}
