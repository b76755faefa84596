// Package evaluate runs policies on the workloads of package workload, in virtual
// time: rota, which is the real state machine with nothing of its logic done
// again here, and what the paper compares with (ARL-Tangram, arXiv:2603.13019,
// §6). It computes what each makes of the time that an action takes to complete
// (ACT: from its submission to its end).
//
// A [Setup] says what runs, [Run] lets one policy work through it, [Compare]
// several. Everything is integers and one goroutine a run, so that a seed gives
// the same results on every machine.
//
// # Policies
//
//   - rota: one replica of the state machine behind a leader that has one entry in
//     flight, as the real one has. What commits, starting a process and opening a
//     sandbox take is [Latency].
//   - fixed-N: the same machine and nodes, but an elastic action asks for N units
//     and nothing else.
//   - pod: a pod for each trajectory. Requests decide where it is placed, the
//     kernel's fair shares and the pod's limit how fast it is (share.go).
//   - static: a model has GPUs of its own for ever, and serves in the order of
//     arrival.
//   - uncontrolled: clients call external APIs whenever they want to, and try
//     again when these fail.
//   - baseline: the last three together, each for what it can do.
//   - shared-N: rota on nodes where actions share cores after N seconds if others wait
//     for cores.
//   - equal: a reference that nobody can build. All cores are one machine, resized
//     at every moment so that everybody has the same. Sandboxes open as under rota.
//   - aged-N: the same, but actions that are older than N seconds have an eighth of
//     the weight.
//
// # In favour of the baselines
//
// Most of what is simpler than the real thing errs to their side. A command in a
// pod starts at once, as does a request to a static service; the kernel divides
// cores without loss; pods that the control plane would give up wait; calls that
// were refused do not count against an API's limit. Pods start while the model
// thinks, and so does a sandbox of rota open, in the same time.
//
// # In favour of rota
//
// A static service takes one request at a time, and a real engine serves several
// together. The control plane of pods creates so many a second, and nothing limits
// how many sandboxes open at once. docs/evaluation.md has sweeps of both.
package evaluate
