// Package pid1 is the first process of a sandbox: it starts commands when the supervisor asks,
// says how they ended, and reaps what loses its parent.
//
// It is the parent of the commands, so that they are in the namespaces of the container without
// anybody entering them, and so that no call of containerd or of runc is needed for one. A
// command starts in the cgroups of its attempt, with the limits that the supervisor has set
// there: the thread that forks moves into the v1 cgroups and back, and the fork itself goes to
// the v2 cgroup. So nothing of a command is ever outside.
//
// What it can do more than the commands, it gives up before the first one: it unmounts the
// folder of its socket, drops the capabilities for that, and hides its memory and descriptors
// from processes with the same user. It needs clone3 to start something in a v2 cgroup, so the
// seccomp profile cannot forbid that call, which also makes namespaces. A second mount of the
// root is what keeps commands from making them: it is the working directory of this process, so that no
// command can exchange it. It does nothing between commands, and takes no CPU time.
package pid1
