// Package devcluster runs a whole cluster on loopback as child processes of one
// parent: real servers and agents, each a process with its own folder and ports,
// so that they can be killed, paused and restarted like those of a real cluster.
// `rota dev`, the demo and the benchmarks stand on it.
//
// Children die with their parent, however it ends: each is started with a
// parent death signal. That signal is tied to the thread that forked, so all
// children are forked by one thread that lives as long as the process.
package devcluster
