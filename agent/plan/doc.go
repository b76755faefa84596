// Package plan is what an agent decides: which attempts it starts, kills,
// reports and forgets, in which order, and for how long it may run anything.
//
// All of it is decided here and done elsewhere. A Plan is told what happened: a
// desired state, an end, an answer. Next takes the time and returns the steps that
// are due. There is no clock, goroutine, lock, file or socket, so the agent and the
// simulated nodes of the fault suite drive the same code.
//
// # At most one live attempt
//
// An attempt is in the journal, durably, before the supervisor hears of it. What
// the journal holds when an agent starts is never started: if the supervisor does
// not know it, it ends as lost, because it may have run. Within one agent, an
// attempt is handed over again only if the supervisor said that it started nothing.
// Writes of the journal are done one at a time, in the order in which they were
// decided: a note that an attempt may be forgotten never removes a later acceptance.
//
// A desired state that is older than the newest one, or than the registration, is
// ignored. So is one of another incarnation.
//
// The cluster gives the attempts of a node to other nodes at once when the node registers as another
// machine: with other cores, memory, GPUs, bandwidth or pool. So what runs is killed before that.
//
// # CPUs
//
// A desired state may give an attempt that runs other CPUs. No attempt gets a CPU, at its
// start or later, while another one may run on it. So what shrinks comes first, and what
// needs these CPUs when that has been answered. If a change is not answered, the attempt
// counts as holding the CPUs before and after it, and the change is asked for again. After
// a new connection, it is the supervisor that says who has which.
//
// The servers leave an attempt the first CPU that it was started on. Otherwise two attempts
// that want each other's only CPU would wait for ever.
//
// Attempts that have run for long may share CPUs (docs/scheduling.md, "Shared cores"). One that is to
// share leaves its own CPUs for the shared ones when those that had these have left. Until it shares
// no more it may run beside others that share, and nobody else does. The servers leave them one CPU as
// long as any shares.
//
// # Pauses
//
// An attempt of a paused trajectory is frozen, and holds no CPU then. That is reported, so that the
// servers give its CPUs to others. It goes on when the servers say so and it has its CPUs again:
// first the change of CPUs, then the thaw. Each pause has a number, so that a report of one is not
// taken for the next. The supervisor says what is frozen when an agent connects.
//
// # Engines
//
// An attempt may need the engine of a model. It is entered into the journal, and started,
// only when the engine is ready. Until then it is merely desired, so that an agent which is
// started again does not take it for lost. If the engine failed, the attempt ends as one that
// could not be started.
//
// An attempt with GPUs and without an engine waits in the same way until no engine leaves its GPUs
// any more: engines leave for it, and need a while to give the memory back. That ends, as an engine
// that does not give its memory back in time is stopped.
//
// # The lease
//
// A renewal counts from when it was sent, and the deadline is a margin before its
// end. So everything is dead before the servers give the node up: they count from
// when they got the renewal, and a margin longer. Clocks of two machines are never
// compared. The margin is what they may differ by during one lease.
//
// Nothing starts before the supervisor knows a deadline, which it enforces itself.
// When the lease ends, or the cluster gives the incarnation up, everything is
// killed. The node registers again when all of it is dead. A supervisor that does not answer
// meanwhile is killed too, also if the agent has lost its connection to it.
//
// # Reports
//
// An end is reported until a server confirms it, or a desired state shows that the
// cluster knows. The supervisor forgets an end after the journal holds that it was
// reported. Otherwise it would look like a lost attempt after a restart.
package plan
