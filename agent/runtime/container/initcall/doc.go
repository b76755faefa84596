// Package initcall is how the supervisor has rota-init start a command in a sandbox: one
// connection for each command, over a Unix socket that only the node can reach.
//
// The supervisor sends a Command, and with it descriptors: standard input, output and error,
// and those through which the command gets into the cgroups of its attempt. rota-init answers
// when the command runs or cannot be started, and again when its main process has ended. Until then
// each byte that the supervisor sends is a signal for the group of that process. If the supervisor
// hangs up, rota-init kills the process.
//
// The path of an action has no call of containerd in it: a connection and two messages cost
// less than a tenth of a millisecond, and the rest is the fork.
package initcall
