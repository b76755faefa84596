// Package container opens the sandboxes of a node: one container for each trajectory that asks
// for one, through containerd, and removes them after their trajectories have ended.
//
// A sandbox is a snapshot of its image, namespaces of its own, and one process, rota-init. It is
// opened by the first action. After that, an action takes no call of containerd: the supervisor
// asks rota-init over a socket (package initcall), and holds the command in the cgroups of its
// attempt as it holds any other. A sandbox without an action has a process that sleeps.
//
// What is open is on disk twice: a record in the folder of the sandbox, from which a restarted
// agent knows it again without containerd, and labels of the container, by which leftovers are
// found that have no record. A sandbox whose first process was killed starts again with its
// files, and without its processes. One whose opening was cut short is removed and opened anew.
//
// The package speaks to containerd by the messages of its API. The library of containerd needs
// sixty modules more, for what a node does not do: build caches, other systems. Images come from
// what containerd has already, in any of the namespaces of Docker, Kubernetes and ctr, from archives
// of the OCI image layout, and from the registries that the operator allows (package registry).
package container
