// Package tier is the cache of a node for values under keys: KV caches of engines, mostly
// some 100 KiB to some MiB each.
//
// There are two tiers. Memory holds what was used last; what it has no room for is
// demoted to disk, and what the disk has no room for is evicted. Both are bounded in
// bytes. Equal values are stored once: a block is a value, and any number of keys may name
// it. A value that comes in is looked for by size and checksum. What is found is compared
// byte by byte if it is in memory, and by BLAKE3 hash if it is on disk. Hashing is slow
// beside all else here, so a block is hashed only when it is demoted.
//
// The memory is one mapping outside of Go's heap, so that the bound holds whatever the
// garbage collector does, and its pages are aligned, so that the disk is read and written
// by direct I/O without a copy: a value goes from the socket into the buffer that is
// written to disk, and from the disk into the buffer that is answered from.
//
// Every block has a CRC-32C for each 512 KiB. It is checked when the block is read, from
// either tier, and when it moves between them. What does not match is a miss and counted.
//
// On disk are segments, files of blocks without any header, and a manifest, which is a
// file of package record that says which block is where and which key names it. Blocks
// reach the disk before the manifest says so. A removal is in the manifest before it is
// answered, so a process that dies never brings an old value back. Nothing is fsynced but
// at a clean end: after a crash of the machine, which is told by the kernel's boot ID, the
// disk tier begins empty, and so it does if the manifest is damaged.
package tier
