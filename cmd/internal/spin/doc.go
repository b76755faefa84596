// Package spin is CPU work of a known amount. Benchmarks and the demo measure with it how
// noisy a machine is: the same work takes longer when something else wants the CPUs, and
// its durations then differ. The suites of `rota bench elastic` consist of it.
package spin
