// Package journal remembers on disk which attempts an agent has accepted, so
// that it never starts one twice, whatever it was doing when it died.
//
// It is one append-only file of checksummed frames. Acceptance is durable
// before anything is started; many attempts share one fsync. What is written
// after an attempt has ended (reported, forgotten) needs no fsync of its own:
// losing it costs a repeated report, which changes nothing.
//
// It also says as which machine the cluster knows the node. An agent that finds another machine kills what
// is left over before it registers. A journal of an older release does not say that, and the machine counts
// as the same: an upgrade loses no work.
//
// A journal that cannot be compacted, as the disk is full, goes on as it is.
//
// A process that dies while writing leaves a prefix of its last frame, which
// was never acted upon and is cut off. A power loss may leave other parts of it,
// and that is not told from corruption: nothing runs any more then, and little is
// lost by beginning anew. Everything else that does not check out is corruption:
// a record that cannot be read may be the acceptance of an attempt that ran, so
// the file as a whole cannot be trusted. The agent then sets it aside, kills
// what is left over and asks for a new incarnation, in which none of the old
// attempts exist.
package journal
