// Package runtime executes attempts on a node: processes in cgroups of their
// own, whose parent is a small supervisor process that outlives the agent.
//
// The supervisor exists because a parent is the only one that learns an exit
// status. It is apart from the agent, and outside its cgroup, so that an agent
// can be restarted, upgraded or killed without any attempt noticing, and so
// that something is left to do the killing when the agent hangs past its lease.
package runtime
