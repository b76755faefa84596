// Package agent makes one machine do what the cluster has decided for it.
//
// Package agent/plan decides what that takes. This package does it: it calls servers,
// follows one stream of desired states on any of them, writes the journal, and has the
// supervisor start and kill attempts. It tells the plan what came of it.
//
// Everything is level-triggered, so a desired state or a report that is repeated, late
// or lost costs nothing.
//
// # Who kills, and when
//
// The lease is a deadline on this machine's CLOCK_BOOTTIME: when a renewal was
// sent, plus the lease, less the margin. Only RenewLease moves it; registering
// grants nothing.
//
//   - At the deadline the agent kills everything it runs. So does the
//     supervisor, which is told each new deadline, on its own: it is there when
//     the agent is frozen, dead or being upgraded. Nothing is started before
//     the supervisor knows a deadline, and it starts nothing after one.
//   - If the supervisor is frozen instead, the agent kills it within the margin
//     and starts another, which first kills what the old one left.
//   - The servers count from when they got the renewal and a margin longer. So
//     there are two margins between the kill and another attempt elsewhere.
//   - A lease that has ended stays so. The agent waits until everything is
//     dead, registers again and begins with a new lease, in the same
//     incarnation if the cluster has not given it up. What was killed is
//     reported with NODE_LOST, which changes nothing if the cluster knows.
//   - When the cluster says that it has given the incarnation up, the same
//     happens at once.
//   - Before an agent registers as one that holds nothing (its journal is new,
//     or was damaged), it kills all that it finds; before it starts anything of
//     a new incarnation, all that is of an older one. If something does not
//     die, nothing is started.
//
// A machine that is paused as a whole cannot be fenced from inside; commands
// whose effects matter hand ROTA_TOKEN_ATTEMPT on to where they are checked.
//
// After a reboot of the machine nothing runs, so attempts that the journal
// holds end with NODE_LOST. If only the supervisor has died, its successor
// kills what is left over before it answers, and they end with SUPERVISOR_LOST.
package agent
