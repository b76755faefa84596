// Package cluster runs a cluster of real processes that faults can be done to:
// servers and agents from a binary, each in a network namespace of its own, with
// TLS and encrypted gossip as in production.
//
// A program that uses it calls Isolate first. It then goes on in new PID, mount
// and network namespaces, which is what makes it safe to kill at any moment: the
// kernel ends every process below it and removes every interface, mount and
// namespace. Two things lie outside of those namespaces, cgroups and temporary
// files. Their names carry the run, and the next run removes those of runs that
// are gone.
//
// The program itself sits at the hub of the network, 10.77.0.1, and reaches every
// member directly. Partitions are made where packets arrive, in the namespace of
// the receiver, which counts what it drops.
package cluster
