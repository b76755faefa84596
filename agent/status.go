package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"

	"rota/agent/plan"
	"rota/api/handshake"
	"rota/api/pki"
	"rota/internal/telemetry"
)

// listenStatus opens the port for metrics, health and operators; nil: none. With TLS, servers,
// operators and clients get in, and agents to health: the probe of a pod has the certificate of
// its agent. Without TLS only this machine does.
func (a *agent) listenStatus() (net.Listener, error) {
	if a.cfg.Metrics == "" {
		return nil, nil
	}
	l, err := net.Listen("tcp", a.cfg.Metrics)
	if err != nil {
		return nil, fmt.Errorf("port for metrics: %w; choose another with --metrics, or \"\" for none", err)
	}
	if !a.cfg.TLS.Enabled() {
		if err := pki.AllowPlaintext(l.Addr()); err != nil {
			l.Close()
			return nil, fmt.Errorf("%w: port for metrics: %w", ErrConfig, err)
		}
		return l, nil
	}
	conf, err := pki.ServerConfig(a.cfg.TLS, pki.RoleServer, pki.RoleOperator, pki.RoleClient, pki.RoleAgent)
	if err != nil {
		l.Close()
		return nil, fmt.Errorf("%w: port for metrics: %w", ErrConfig, err)
	}
	conf.NextProtos = []string{"h2", "http/1.1"}
	return handshake.Listen(l, conf, a.log.Named("metrics")), nil
}

// serveStatus serves that port until the context is done.
func (a *agent) serveStatus(ctx context.Context, l net.Listener) error {
	mux := http.NewServeMux()
	mux.Handle("/metrics", onlyFor(telemetry.MetricsHandler(a.registry()), pki.RoleServer, pki.RoleOperator, pki.RoleClient))
	mux.Handle("/livez", telemetry.HealthHandler(telemetry.Alive))
	mux.Handle("/readyz", telemetry.HealthHandler(a.readiness))
	mux.Handle("/debug/", onlyFor(telemetry.Debug{
		Logger: a.log, Recent: a.cfg.Recent, Settings: a.cfg.Settings, State: a.debugState,
	}.Handler(), pki.RoleOperator))
	srv := a.newServer(mux, a.log.Named("metrics"))
	stopped := context.AfterFunc(ctx, func() { _ = srv.Close() })
	defer stopped()
	if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("port for metrics: %w", err)
	}
	return ctx.Err()
}

// readiness says whether the node can start something, and why not.
func (a *agent) readiness() []telemetry.Check {
	load := a.load()
	_, low := a.disk.space()
	return []telemetry.Check{
		telemetry.Require("supervisor", load.Connected, "the supervisor does not answer; look at the log of the agent"),
		telemetry.Require("registered", load.Registered, "the node is not registered; check that a server can be reached: rota operator status"),
		telemetry.Require("lease", load.LeaseNS > 0, "the node has no lease; check that the leader can be reached: rota operator status"),
		telemetry.Require("disk", !low, "the disk is low: free space in --data-dir, or change --disk-floor"),
	}
}

// debugState describes the agent without what actions contain.
func (a *agent) debugState() any {
	load := a.load()
	attempts := map[string]int{}
	for phase, n := range load.Attempts {
		attempts[plan.PhaseNames[phase]] = n
	}
	return map[string]any{
		"node": a.cfg.Name, "incarnation": a.journal.Incarnation(), "runtime": a.runtime, "address": a.address,
		"attempts": attempts, "cores": a.inv.Cores(), "cores_in_use": load.Cores,
		"lease_remaining_seconds": float64(load.LeaseNS) / 1e9, "registered": load.Registered, "supervisor_connected": load.Connected,
		"servers": a.servers.count(), "index": a.seenIndex(), "readiness": a.readiness(),
	}
}
