// Package demo shows what rota is for, on one machine and in about a minute.
//
// It starts a real cluster on loopback, runs coding trajectories on it - agents
// that think, then build, vet or test packages of the standard library, then
// think again - and kills the leader with SIGKILL half-way through. It then
// accounts for every action: which were acknowledged and lost, and which ran
// more than once, by a file that each command appends to before it does anything
// else.
//
// The same trajectories also run without rota, in the way that is common: each
// reserves a core for as long as it lives, thinking included, and waits in line
// until one is free. That wait is charged to its first action, whose completion
// time it is part of. Both ways run the same commands pinned to the same cores,
// with one warmed build cache. They take turns in small batches, in the order
// reserved, rota, rota, reserved and so on, so that a machine that gets slower or
// faster favors neither. Before each turn the same work is measured: how much its
// duration varies says how noisy the machine is.
//
// Then comes a parallel test suite (folder suite) of a class that rota knows
// nothing of. It learns by the first ones how long a suite takes with how many cores,
// and from then on gives one that is alone the cores that help it, and fewer to each of
// several that come together.
//
// At the end a long suite runs, and others come and go. Each change of their cores is
// shown as it happens.
package demo
