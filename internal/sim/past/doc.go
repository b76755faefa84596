// Package past replays what a real cluster has done: "what if", on the user's own data.
//
// A [Reader] applies the log of a server, from the beginning or behind a snapshot, to the
// state machine that wrote it, and notes each action when it ends: when it was
// submitted, how long it ran and on how many cores. Nothing of the format of the log is
// known here.
//
// [Past.Replay] makes trajectories of that (package workload) and lets policies work
// through them (package evaluate): first rota on the cluster as it was, which shows how
// well the simulation fits, then what the user wants to know.
//
// All times are log time, so what commits cost is in the gaps of trajectories and in
// the dispatch that is measured here; the simulation adds no commits of its own.
//
// # What is assumed
//
//   - A trajectory submits its next action as long after the end of the one before as
//     it did. An action without a trajectory comes when it came.
//   - An action's speed-up is the one that its client gave; else Amdahl's law, fitted to
//     what its class has learned of several widths; else the law with the serial
//     fraction that the scheduler assumes (scale.AssumedCurve).
//   - All nodes of the pool are there all the time, and no attempt is lost.
//   - Turns of training jobs, GPUs, bandwidth, spreading, queue timeouts and other pools
//     are left out.
package past
