package tier

import (
	"errors"
	"os"
	"slices"
	"time"

	"github.com/zeebo/blake3"
)

// Hash is the BLAKE3 hash of a value.
type Hash = [32]byte

// Info describes the value of a key, for those who move values between stores.
type Info struct {
	Key  string
	Size uint64 // bytes
	// Sums are the CRC-32C of each ChunkBytes; an empty value has one. They are shared: do
	// not change them.
	Sums []uint32
	// Hash is known of a value that is on disk, or that was asked for it before.
	Hash   Hash
	Hashed bool
	// Left is how long the key will exist; negative: until it is evicted.
	Left time.Duration
}

// Tagged looks at up to n keys that may have a tag (HasTag) and returns those that do, and
// where to go on, which is 0 at the end and at the start. A key that exists all the while is
// returned once. Of a key with more than 16 tags, the first 16 count.
func (s *Store) Tagged(tag string, cursor uint64, n int) (keys []string, next uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := withoutSuffix(tag)
	from := tagged{at, &entry{seq: cursor}}
	s.index.byTag.Ascend(from, func(t tagged) bool {
		if t.tag != at {
			return false
		}
		if n--; n < 0 {
			next = t.entry.seq
			return false
		}
		if HasTag(t.entry.key, tag) {
			keys = append(keys, t.entry.key)
		}
		return true
	})
	return keys, next
}

// Describe describes the values of those keys that exist, in their order.
func (s *Store) Describe(keys []string) []Info {
	s.mu.Lock()
	defer s.mu.Unlock()
	infos := make([]Info, 0, len(keys))
	for _, key := range keys {
		if e := s.find(key); e != nil {
			infos = append(infos, s.describe(e))
		}
	}
	return infos
}

func (s *Store) describe(e *entry) Info {
	i := Info{Key: e.key, Size: uint64(e.block.size), Sums: e.block.sums, Hash: Hash(e.block.hash), Hashed: e.block.hashed, Left: -1}
	if e.expires != 0 {
		i.Left = time.Duration(e.expires-s.options.Now().UnixMilli()) * time.Millisecond
	}
	return i
}

// Peek returns the value of a key, to be released, and its description; nil if there is none.
// It does not count as a use, and what is only on disk does not come into memory for longer
// than the caller has it: values that move elsewhere displace none that are used here. Bytes
// that were in memory are not checked: whoever gets them compares them with the checksums.
// It fails with ErrFull or ErrClosed.
func (s *Store) Peek(key string) (*Value, Info, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for !s.closed {
		e := s.find(key)
		if e == nil {
			return nil, Info{}, nil
		}
		info := s.describe(e)
		if v := e.block.value; v != nil {
			return v.retain(), info, nil
		}
		v, again, err := s.readApart(e.block)
		if !again {
			return v, info, err
		}
	}
	return nil, Info{}, ErrClosed
}

// readApart reads a block from disk and leaves it there only. Store.mu is not held meanwhile.
func (s *Store) readApart(b *block) (v *Value, again bool, err error) {
	segment, offset := b.segment, b.offset
	s.mu.Unlock()
	v, err = s.NewValue(uint64(b.size))
	made := err == nil
	if made {
		err = readBlock(segment.file, offset, v, b.sums)
	}
	s.mu.Lock()
	if err == nil || !made {
		return v, false, err
	}
	v.Release()
	if there := !b.gone() && b.segment == segment && b.offset == offset; there && !errors.Is(err, os.ErrClosed) {
		s.counts.corrupt++
		s.lose(b)
	}
	return nil, true, nil
}

// HashOf returns the hash of a key's value, which may take as long as reading the value.
func (s *Store) HashOf(key string) (h Hash, exists bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for !s.closed {
		e := s.find(key)
		if e == nil {
			return h, false
		}
		if b := e.block; s.hashBlock(b) {
			return Hash(b.hash), true
		}
	}
	return h, false
}

// hashBlock has a block hashed. If its bytes are damaged it drops them and returns false.
// Store.mu is not held meanwhile.
func (s *Store) hashBlock(b *block) bool {
	if b.hashed { // as all are that are on disk
		return true
	}
	v := b.value.retain()
	defer v.Release()
	s.mu.Unlock()
	ok := matches(v.Bytes(), b.sums)
	var h hash
	if ok {
		h = blake3.Sum256(v.Bytes())
	}
	s.mu.Lock()
	switch {
	case ok:
		b.hash, b.hashed = h, true
	case b.value == v:
		s.counts.corrupt++
		s.leaveMemory(b)
	}
	return ok
}

// Compare says whether a key exists, and whether its value has the size and the checksums.
// If so it counts as used.
func (s *Store) Compare(key string, size uint64, sums []uint32) (exists, equal bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.find(key)
	if e == nil {
		return false, false
	}
	b := e.block
	if equal = uint64(b.size) == size && slices.Equal(b.sums, sums); equal {
		s.touch(e)
	}
	return true, equal
}

// Likely says whether some key has a value with the size and the checksums, which is then
// equal but for chance. Adopt makes sure.
func (s *Store) Likely(size uint64, sums []uint32) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.likely(size, sums) != nil
}

func (s *Store) likely(size uint64, sums []uint32) *block {
	if size > s.options.ValueBytesMax || len(sums) != chunks(int(size)) {
		return nil
	}
	b := s.index.blocks[fingerprintOf(int(size), sums)]
	if b == nil || !slices.Equal(b.sums, sums) {
		return nil
	}
	return b
}

// Adopted is what Adopt did.
type Adopted int

// What Adopt may do.
const (
	AdoptedNone Adopted = iota // the store does not have the value
	AdoptedKey                 // the key names the value now
	AdoptedNot                 // the key exists already, and was left alone
)

// Adopt makes a key that does not exist name a value that the store has under any other key:
// one with the size, the checksums and the hash. It fails with ErrTooLarge or ErrClosed.
func (s *Store) Adopt(i Info, expires time.Time) (Adopted, error) {
	if len(i.Key) > KeyBytesMax {
		return AdoptedNone, ErrTooLarge
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.settleKeys(i.Key)
	b := s.likely(i.Size, i.Sums)
	if b == nil || !s.hashBlock(b) || b.gone() || Hash(b.hash) != i.Hash {
		return AdoptedNone, nil
	}
	if s.closed {
		return AdoptedNone, ErrClosed
	}
	if s.find(i.Key) != nil {
		return AdoptedNot, nil
	}
	if b.gone() { // the key has just expired, and the block with it
		return AdoptedNone, nil
	}
	e := s.index.add(i.Key)
	s.link(e, b, unixMS(expires))
	s.touch(e)
	s.boundIndex()
	return AdoptedKey, nil
}
