// Package engine runs the engines of models on one node: it starts them, puts them to sleep,
// wakes, stops and watches them, as package chunks decides.
//
// Engines are children of the supervisor (agent/runtime), as attempts are. So they outlive
// the agent, and die with the node's lease. A record on disk says which ones there are and
// how they were left. It is written before anything is done to an engine and after, so an
// agent that starts again knows which engines it can take over. An engine to which something
// was being done is stopped and started.
//
// # What engines answer is not believed
//
// A status of 200 from a call to sleep does not mean that GPU memory is free. Where NVML sees
// the GPUs, it has to say so; else the engine's own account does: vLLM's /is_sleeping, or that
// the process has ended. SGLang and the driver http have no such account, and are believed.
// A call that hangs ends at its time limit. An engine that did not do as it was told is
// stopped, and started again if it should be ready. What is read of an answer is bounded.
package engine
