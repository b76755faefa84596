// Package leader is what a leader does between entries: it founds the cluster, has timers
// fire, gives up nodes and turns whose leases have ended, runs the hooks of groups that
// change hands, foresees who needs a prefetch, and plans moves of jobs, moves of trajectories and the workers of pools.
//
// All of it is decided here and carried out elsewhere. A Leader is told the time and what
// became of its proposals; it returns what to propose, and when to be asked again. It has
// no clock, goroutine or socket, so the server and the simulated servers of the fault
// suite drive the same code.
//
// What a duty must remember is in the replicated state. The rest, such as when to try again, is
// forgotten with the leadership: the next leader goes on where the state is.
package leader
