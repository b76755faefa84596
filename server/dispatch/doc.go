// Package dispatch tells agents what their nodes should be doing.
//
// What is sent is desired state, the whole of it every time, with the index it
// is from. So nothing has to be remembered about an agent: a lost message, a
// broken stream, a new leader or a server that was restored from a snapshot cost
// one more message. The state machine only names the nodes that changed; that
// mark never blocks it and holds no data, so a slow agent costs one flag however
// much happens meanwhile, and then gets the newest state and none of the steps.
//
// Only what to run travels once per stream and attempt: commands can be 64 KiB,
// and an agent has either journaled one or lost its stream.
package dispatch
