// Package witness sees every execution of every action from outside of rota.
//
// What a cluster believes about executions cannot prove that two of them were
// never alive at the same time. So each action's command is a probe that
// connects to the witness before it works and keeps the connection until it
// ends. The kernel closes the connection when the last process that holds it is
// gone, however that came about, so the end of the connection is the end of the
// execution: a killed supervisor, agent or machine cannot fake it.
//
// Times are only as good as their order, and a verdict must never come from the
// witness being late. One thread looks at all connections. Of everything that
// the kernel reports together, ends are recorded before starts, so an execution
// that was dead before another one began is always recorded that way; and a
// probe does not work before its start is recorded, so work of two executions at
// the same time is always seen.
//
// Observers elsewhere know nothing of that order. On a busy machine the thread may
// come to record an end long after somebody else has heard of it. So it notes not
// only when it recorded an end, but also until when it is certain that the
// execution was alive: it looks all the time, and asks for the time before a look.
// Whose end such a look does not report was alive then, however late the thread is
// afterwards. Only a look that had room for everything counts. A connection that
// has not been accepted is in no look, but nothing is certain of a probe before it
// has taken the permission to work, and from then on it is in every look.
//
// Engines of models are seen in the same way. An engine makes one connection for its life, and
// another one for as long as it holds memory of its GPUs. It answers a call to sleep only when
// the second one is closed, so that whoever takes the memory then is recorded after that.
package witness
