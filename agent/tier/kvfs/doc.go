// Package kvfs serves a store of package tier as a directory: each file is a value, and its name is
// the key. It is for the file back end of SGLang's HiCache, which reads and writes pages of KV
// caches as files of one directory.
//
// It is a FUSE file system rather than a plain directory that is watched. Pages then land in the
// tiers at once, once for all equal ones, and their limits hold at every moment. A plain directory
// would hold each page a second time, could only be cut back after it has grown, and would need a
// copy of each page before a migration.
//
// The back end treats one error of a read as a miss: that the file does not exist. Any other ends
// its prefetching until the engine is restarted. So a file is read from its tier and checked when it
// is opened. What cannot be read does not exist, and an open file can always be read.
//
// A file that is written becomes a value when the process that opened it closes it. A process that
// is killed while it writes leaves nothing. Reads and writes bypass the page cache of the kernel:
// nothing is held in memory twice, and nothing is written later.
//
// The kernel ends the connection when the last process that has /dev/fuse open is gone. So the file
// is closed on exec: an engine or a supervisor that outlives a killed agent must not keep requests
// waiting that nobody answers. They fail at once instead. A guard, a process that outlives the
// agent, then takes the dead mount away. Below it is an empty directory that nobody can write: an
// engine has misses there. If the guard was killed too, the next Mount takes the dead mount away.
package kvfs
