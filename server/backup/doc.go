// Package backup is the file that a backup of a cluster is kept in: written whole or not at
// all, and checked before anything believes it. It knows neither Raft nor the API.
//
// A file is, in this order:
//
//	magic, 8 bytes | version, 4 | length of the header, 4 | header, a BackupHeader as protobuf
//	CRC-32C of all before, 4
//	data: a snapshot as fsm/state writes it, with a checksum and the state hash of its own
//	length of the data, 8 | SHA-256 of all before, 32
//
// Numbers are little-endian. The SHA-256 covers the header too, so that a file cannot be put
// together of two. It finds damage, not forgery: who can write the file can write the sum.
package backup
