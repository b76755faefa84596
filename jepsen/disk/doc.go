// Package disk is a disk that fails on command: a FUSE file system over a real
// folder, with real files and real fsync below it, that knows what a power loss
// would leave of them.
//
// # What a power loss leaves
//
// The model is what POSIX promises and no more:
//
//   - fsync of a file makes its content and size durable, and nothing else: not
//     its name;
//   - fsync of a folder makes its entries durable: names that were created,
//     renamed or removed in it. A rename between two folders is one step, so
//     that an fsync of either makes it durable, with all that is pending in both;
//   - permissions, owners and times are durable at once. Nobody relies on them;
//   - everything else is lost, or, if the loss tears, survives at random.
//
// A torn loss keeps a random beginning of the pending changes of names, in the
// order in which they were made, as a file system with a journal does. In a
// file each sector of 512 bytes ends up in one of the states that it has had
// since the last fsync, independently of its neighbours, and the size is one of
// those that the file has had. A truncation is an order: what was written after
// it survives only if it did, with all that had been written before.
//
// # Failed fsyncs
//
// An fsync that fails does what Linux does: it fails once, the sectors that it
// was to write count as clean from then on, readers go on seeing them, and the
// next fsync succeeds without them. Only a sector that is written again has
// another chance.
//
// # What it costs
//
// A small write takes about 40 microseconds more than on the folder below, so
// that buffered writes of 4 KiB are two to three times slower. One that is
// synced costs what its fsync costs: there is no difference to be measured.
//
// # Who may touch it
//
// The file system is served by the process that mounts it. That process must
// never use the mount point itself, not even to look: Go may start a process, or
// stop the world, in the middle of a call that only another goroutine of the
// same process can answer. It uses the folder below, best after the users of
// the mount point are gone.
package disk
