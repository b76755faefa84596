// Package predictor asks a predictor service how much trajectories generate yet (Heddle §4.1), while
// its server leads. What the service answers becomes a command of the log, so all replicas order and
// place trajectories by the same numbers, whatever the service would say when it is asked again.
//
// The service is outside of the cluster, and may be absent, slow or wrong. So nothing waits for it:
// after each turn rota's own prediction counts until the service has answered. A call has a time
// limit, and one call is under way at a time. After a failure there is a pause, which doubles. What
// is answered is bounded when it is applied (fsm).
package predictor
