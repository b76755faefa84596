// Package transfer moves values of one node's KV cache (package tier) to another node's: the
// target pulls them from the source's agent.
//
// The servers tell both agents of a migration: its number, the peer, and a Selector that says
// which values are meant. The source uses the selector that it was told, never one from the
// peer, and checks each key that is asked for. The target refuses keys that its selector does
// not choose. So an agent that was broken into gets nothing that no migration gives it.
//
// # Requests
//
// All are POST requests over HTTP/1.1 to Path, with the migration in the query. Bodies are
// messages with their length before each.
//
//	list    a page of what is chosen: key, size, checksums, hash if it is known, time to live.
//	        The first page says how much there is in all
//	hash    for some keys, the hashes of their values
//	values  for some keys, their values: a message, then the bytes as they are in memory
//
// The target works page by page, so its memory is bounded however much moves. Values go from
// the source's memory tier to its socket, and from the target's socket into the memory that
// becomes the value there. HTTP/2 is refused: its frames and its flow control would cost more
// than they give here, and its writers may still read a value's memory when it was released.
//
// # Equal content
//
// BLAKE3 costs about as much as TLS, and CRC-32C almost nothing. The store has a CRC-32C of
// each 512 KiB of a value anyway, but it hashes a value only when it is demoted. So the size
// and the CRCs are the hint: a value whose hint no value of the target has is not at the
// target, and is moved without any hash. Only where the hint agrees do both ends hash, once,
// and at the same time. If the hashes are equal, which is then all but certain, the target
// links the key to what it has. So hashing is paid for bytes that are not moved, and it is
// cheaper than moving them. The hint alone would not do: four bytes agree by chance for one
// pair in four billion, and a peer could make them agree.
//
// # Damage
//
// TLS protects the bytes on the way. The CRCs that the source computed when it got the value
// travel before it, and the target compares each 512 KiB as it arrives. So the source does
// not check what it sends from memory: damage there is found at the target. It asks for the
// value again and says so, and then the source checks, and drops a damaged copy.
//
// # Broken connections
//
// The target connects again, with back-off, as long as something gets through within 15 s. It
// asks for what it does not have: the rest of the page, and of a value the chunks that have
// not come. A Run that follows a failed one finds what arrived under its key.
//
// # Keys
//
// A value lands only under a key that does not exist. If the target has one of its own under
// the key by then, that is newer, and stays, with its expiry. A time to live is counted from
// when the source said it, on the target's clock; the clocks are never compared.
package transfer
