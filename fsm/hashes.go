package fsm

import "sort"

// hashesKept is how many entries back a replica can say what its state hashed
// to: a second at the highest rate that was measured.
const hashesKept = 4096

// hashes is the state hash after each of the last entries, so that servers which
// are asked one after the other can answer for the same entry. It is not
// replicated state: a restarted replica begins again.
type hashes struct {
	ring []stateHash // by index, cyclic from next once it is full
	next int
}

type stateHash struct{ index, hash uint64 }

// add notes the hash after an entry that is newer than all before it.
func (h *hashes) add(index, hash uint64) {
	if len(h.ring) < hashesKept {
		h.ring = append(h.ring, stateHash{index, hash})
		return
	}
	h.ring[h.next] = stateHash{index, hash}
	h.next = (h.next + 1) % hashesKept
}

// since returns the oldest that is no older than from. It is not ok if that may
// have been forgotten, or is still to come.
func (h *hashes) since(from uint64) (index, hash uint64, ok bool) {
	at := func(i int) stateHash { return h.ring[(h.next+i)%len(h.ring)] }
	n := len(h.ring)
	if n == 0 || from < at(0).index {
		return 0, 0, false
	}
	i := sort.Search(n, func(i int) bool { return at(i).index >= from })
	if i == n {
		return 0, 0, false
	}
	return at(i).index, at(i).hash, true
}
