package replica

import (
	"encoding/binary"
	"hash/crc32"

	"github.com/hashicorp/raft-wal/segment"
)

// A segment of raft-wal begins with a header. Then come frames, each of a header and,
// rounded up to its length, a payload:
//
//	type 1 | 0 3 | length of the payload, or a checksum 4
//
// An append is a frame for each entry, then one for the index if the segment is full,
// then one that commits: it has no payload, and its checksum is over everything since
// the commit before it, or since the beginning.
const (
	segmentHeader = 32
	frameHeader   = 8
)

// segmentTail is what a segment holds.
type segmentTail struct {
	end     int // of the last append that is complete, in bytes
	entries int
	// indexStart is where the index of a full segment begins, 0 of one that is not.
	indexStart int
}

// readTail finds the last append that is complete. Those before it were flushed before
// it was written, so if one of them does not match its checksum that is damage and no
// torn write: it stays, and reading its entries finds it.
func readTail(data []byte) (tail segmentTail) {
	var entries, indexStart, since int
	for at := segmentHeader; at+frameHeader <= len(data); {
		payload := int(binary.LittleEndian.Uint32(data[at+4:]))
		switch data[at] {
		case segment.FrameEntry:
			entries++
			indexStart = 0
		case segment.FrameIndex:
			indexStart = at + frameHeader
		case segment.FrameCommit:
			if crc32.Checksum(data[since:at], castagnoli) == uint32(payload) {
				tail = segmentTail{at + frameHeader, entries, indexStart}
			}
			payload, since = 0, at+frameHeader
		default:
			return tail
		}
		at += frameHeader + (payload+frameHeader-1)&^(frameHeader-1)
	}
	return tail
}

// usedBytes is where the zeros at the end begin.
func usedBytes(data []byte) int {
	for len(data) > 0 && data[len(data)-1] == 0 {
		data = data[:len(data)-1]
	}
	return len(data)
}
