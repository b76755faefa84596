// Package devcluster runs a whole cluster on loopback as child processes of one
// parent: real servers and agents, each a process with its own folder and ports,
// so that they can be killed, paused and restarted like those of a real cluster.
// `rota dev`, the demo and the benchmarks stand on it.
package devcluster
