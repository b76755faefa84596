// Package workload makes the load of a run under faults, and writes down what
// became of every call.
//
// A call that was answered with success has happened. One that a server has
// refused, saying that nothing was done, has not. All others may have happened,
// or may still happen later: time-outs, lost connections, calls that were under
// way when the run ended. Checkers rely on that line being drawn correctly, so
// it is drawn in one place, outcome.go, and in doubt a call is unknown.
//
// Workloads therefore call one server at a time, without the repetitions of the
// client library, and give each call so little time that a fault costs a worker
// seconds and not minutes. One workload uses the library as people do.
//
// Clients pace themselves: the load is what was asked for however fast the
// cluster is, and a fault makes it less, never more. All of a run's workloads
// share an Env, through which one of them reads and cancels what another has
// submitted.
package workload
