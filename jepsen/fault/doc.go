// Package fault breaks a running cluster on purpose, in every way that it
// promises to survive.
//
// A fault has a beginning and an end, and proof: what was observed that could
// not have been observed had it not happened, such as the signal that ended a
// process, packets that a firewall counted, or a node that the cluster took for
// lost. Without proof a fault has not happened, and a run whose faults did not
// happen has shown nothing. Who waits is the scenario; a fault only begins and
// ends.
package fault
