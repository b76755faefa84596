// Package dispatch tells agents what their nodes should be doing.
//
// What is sent is desired state with the index it is from: the whole of it when a
// stream begins, and then what has changed since the message before. A change names
// that message, so an agent that has another state notices and opens a new stream. What was
// sent is remembered for as long as the stream lasts and no longer: a broken stream, a
// new leader or a server that was restored cost one whole state. The state machine only names the nodes that changed; that
// mark never blocks it and holds no data, so a slow agent costs one flag however
// much happens meanwhile, and then gets the newest state and none of the steps.
//
// Engines are sent whole each time: those that should be ready on the node follow from what is
// resident there and how that is served. They are few, and an agent that missed one would stop it.
//
// Sandboxes to open ahead of actions are named once per stream. The trajectories of a node are looked
// through for them only when one with a container was placed there, and with the whole state.
//
// Only what to run travels once per stream and attempt: commands can be 64 KiB,
// and an agent has either journaled one or lost its stream.
package dispatch
