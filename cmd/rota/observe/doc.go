// Package observe tests what operators see of a cluster of real processes: metrics, alerts in a
// real Prometheus, logs, readiness and debug bundles.
package observe
