// Package telemetry is what servers, agents and gateways say of themselves: metrics, logs
// and health.
//
// All metrics are defined in one catalogue, and can be made only from it. So docs/metrics.md
// is generated, the names that dashboards and alerts use can be checked, and one metric never
// has two meanings. Names follow the rules of Prometheus: base units, `_total` for counters.
// Labels have few values, each bounded by a limit of the cluster.
//
// Logs pass through a Log, which keeps the newest lines for `rota operator debug` and
// changes its level while the process runs.
package telemetry
