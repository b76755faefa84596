// Package tensor is the state manager of a node: it holds the training states of workers
// (weights, optimizer shards) while the GPUs that they came from do other work (PlexRL
// §4.5, §5.3).
//
// A state is a set of tensors under a key: deployment, policy version, rank. Its bytes are
// in memfds that the agent makes and passes to workers, which map them, so no byte goes
// through a socket. The tensors of one group share a memfd. A state is written once: commit
// seals its memfds, and the kernel then refuses every write. So states can share memfds, and
// a reader needs no lock.
//
// Contents are named by BLAKE3 hashes of blocks of 4 MiB, which start anew with each tensor.
// Groups with equal contents share a memfd. On disk each block is a file that is named by its
// hash, so equal blocks are stored once, and what did not change between two versions is not
// written again. Files instead of the segments of package tier: blocks are large, they may
// never be evicted, and a checkpoint is then a folder of the same form on any file system. Files
// of blocks that no state needs are written over by the next blocks (spare.go).
//
// A state may also be in memory of a device (package device), copied from its memfds and back
// in one copy. Memfds that the agent alone has seen are filled again, as finding and pinning
// their pages takes longer than the copy (ready.go). Others are pinned while they are hashed or read.
//
// A checkpoint may be in an object store instead (remote.go), under keys of the form of a folder. Objects
// appear whole, so blocks are sent one by one, and the manifest last.
//
// Every state that is on disk has a manifest: a file of package record that appears whole, by
// a rename, once the blocks that it names are durable. A crash therefore leaves a whole state
// or none, and files that no manifest names, which the next Open removes. Blocks are compared
// with their hashes whenever the agent reads them, from memory or from disk. To write memory of a
// state that was committed here, or to take it back from a device, their CRC-32C is enough: it is as
// old as the hash, and hashing again would take longer than a fast disk or a link to a GPU.
//
// Blocks are written under other names, some at a time, synced together, and only then get the
// names that say what is in them. To sync each by itself would have the disk wait for its cache
// and the journal of the file system with each block.
//
// Locks: Store.mu guards the maps and counts, and no I/O runs under it. state.moving makes
// the operations that move one state follow each other. block.mu guards one file.
package tensor
