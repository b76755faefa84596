// Package record is how the agent writes facts to files that it appends to: frames
// with checksums, the fields in them, the calls that make files last, and the boot of the
// machine for facts that do not.
//
// A frame is
//
//	length of payload, CRC of length, CRC of payload (4 bytes each), payload
//
// with CRC-32C, little endian. The length has a checksum of its own, so that a flipped
// bit in it cannot make a whole frame look like a torn one: a file that ends within a
// frame was cut by a crash, and everything else that does not check out is damage. What
// either means is for the owner of the file to say.
package record
