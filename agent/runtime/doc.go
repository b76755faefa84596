// Package runtime executes attempts on a node: processes in cgroups of their
// own, whose parent is a small supervisor process that outlives the agent.
//
// The supervisor exists because a parent is the only one that learns an exit
// status. It is apart from the agent, and outside its cgroup, so that an agent
// can be restarted, upgraded or killed without any attempt noticing, and so
// that something is left to do the killing when the agent hangs past its lease.
//
// An attempt has ended when nothing of it is alive. When its main process exits,
// what that one left behind is killed, whatever session or parent it moved to,
// and only then is the end told: whoever gets its CPUs next has them alone.
//
// The CPUs of an attempt can change while it runs, where there is a cpuset controller. The
// kernel has moved all of its threads when the write to the cpuset returns.
//
// The supervisor journals that an attempt begins before it forks and that it
// ended before it tells the agent. If it dies, the kernel kills the main
// processes; the next Dial starts another supervisor, which kills all that is
// left and reports those attempts as lost before it serves anybody.
//
// A program that takes long to be executed holds up its own attempt and nothing else (forking.go).
//
// Attempts write their output into files without anybody in between, so that it
// survives the death of both. What is older than the newest OutputBytesMax bytes
// of a stream is cut out by making a hole, which leaves offsets as they were.
//
// How much can be enforced depends on the machine; Client.Describe says it.
// Cgroups v1 (cpuset, memory, freezer), v2, or both beside each other are used
// where this user may create them: at the top of the tree, or in a delegated v2
// subtree. Without them attempts are sessions with a CPU affinity, below a
// supervisor that adopts whatever loses its parent. containerd/cgroups finds,
// makes and removes the hierarchies, moves the supervisor, and ends what an
// earlier one left. What each attempt needs is written directly, three to six
// short writes: the library takes four to twenty times as long for them.
package runtime
