package tier

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"rota/agent/internal/record"
)

const (
	manifestName  = "manifest"
	manifestMagic = "rotakvm\x01"
	// hashBytes is the size of a hash.
	hashBytes = len(hash{})
)

// The kinds of records. Each is a frame of its own.
const (
	kindBoot   = 1 // string: boot ID of everything that follows
	kindBlock  = 2 // hash, uvarints segment, offset, size; checksums (4 bytes each)
	kindKey    = 3 // string: key; hash; uvarint: expiry in Unix ms, 0 for none
	kindDrop   = 4 // string: key
	kindEvict  = 5 // hash: the block and its keys are gone
	kindClear  = 6 // everything is gone
	kindClosed = 7 // what is before is durable
)

// errManifest means that a manifest cannot be trusted.
var errManifest = errors.New("malformed record")

func blockRecord(b *block) []byte {
	p := append([]byte{kindBlock}, b.hash[:]...)
	p = binary.AppendUvarint(p, b.segment.id)
	p = binary.AppendUvarint(p, uint64(b.offset))
	p = binary.AppendUvarint(p, uint64(b.size))
	for _, sum := range b.sums {
		p = binary.LittleEndian.AppendUint32(p, sum)
	}
	return p
}

func keyRecord(e *entry) []byte {
	p := append(record.AppendString([]byte{kindKey}, e.key), e.block.hash[:]...)
	return binary.AppendUvarint(p, uint64(e.expires))
}

func dropRecord(key string) []byte { return record.AppendString([]byte{kindDrop}, key) }

func evictRecord(h hash) []byte { return append([]byte{kindEvict}, h[:]...) }

func clearRecord() []byte { return []byte{kindClear} }

// located is a block as a manifest has it.
type located struct {
	segment, offset, size uint64
	sums                  []uint32
	// life tells a block from one with the same hash that was evicted before. Moving it
	// within the disk does not change it.
	life int
}

// named is a key as a manifest has it.
type named struct {
	hash    hash
	expires int64
	life    int // of the block
	at      int // tells keys that were written earlier from later ones
}

// contents are what a manifest says.
type contents struct {
	bootID string
	closed bool // nothing was written after a clean end
	blocks map[hash]located
	order  []hash // of the blocks, last written last; some may be gone
	keys   map[string]named
	named  int // keys were written so often
	// size of the file, and where its last record ends but for the one that closes it, in bytes.
	size, end int64
}

// byAge are the keys, last written last.
func (c *contents) byAge() []string {
	return slices.SortedFunc(maps.Keys(c.keys), func(a, b string) int { return cmp.Compare(c.keys[a].at, c.keys[b].at) })
}

// readManifest reads the manifest of a folder, nil if there is none. A torn tail is left
// out; any other damage is an error.
func readManifest(dir string) (*contents, error) {
	data, err := os.ReadFile(filepath.Join(dir, manifestName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return decodeManifest(data)
}

func decodeManifest(data []byte) (*contents, error) {
	c := &contents{blocks: map[hash]located{}, keys: map[string]named{}, size: int64(len(data))}
	rest, ok := bytes.CutPrefix(data, []byte(manifestMagic))
	if !ok {
		return nil, errManifest
	}
	for {
		payload, n, err := record.Cut(rest)
		if err == nil && n > 0 {
			err = c.apply(payload)
		}
		if err != nil {
			return nil, fmt.Errorf("at byte %d: %w", len(data)-len(rest), err)
		}
		if n == 0 {
			break
		}
		if rest = rest[n:]; !c.closed {
			c.end = c.size - int64(len(rest))
		}
	}
	c.dropUnnamed()
	return c, nil
}

func (c *contents) apply(payload []byte) error {
	d := record.Decoder{Rest: payload}
	kind := d.Byte()
	c.closed = kind == kindClosed
	switch kind {
	case kindBoot:
		c.bootID = d.String()
	case kindBlock:
		c.applyBlock(&d)
	case kindKey:
		key, h := d.String(), readHash(&d)
		expires := d.Uvarint()
		c.named++
		c.keys[key] = named{h, int64(expires), c.blocks[h].life, c.named} // dropUnnamed drops it if there is none
	case kindDrop:
		delete(c.keys, d.String())
	case kindEvict:
		delete(c.blocks, readHash(&d))
	case kindClear:
		clear(c.keys)
	case kindClosed:
	default:
		return errManifest
	}
	if d.Failed || len(d.Rest) > 0 {
		return errManifest
	}
	return nil
}

func (c *contents) applyBlock(d *record.Decoder) {
	h := readHash(d)
	l := located{segment: d.Uvarint(), offset: d.Uvarint(), size: d.Uvarint()}
	if l.size > 1<<40 || l.offset > 1<<50 || len(d.Rest) != 4*chunks(int(l.size)) {
		d.Failed = true
		return
	}
	for b := d.Bytes(uint64(len(d.Rest))); len(b) > 0; b = b[4:] {
		l.sums = append(l.sums, binary.LittleEndian.Uint32(b))
	}
	c.order = append(c.order, h)
	if l.life = len(c.order); c.blocks[h].sums != nil {
		l.life = c.blocks[h].life
	}
	c.blocks[h] = l
}

func readHash(d *record.Decoder) (h hash) {
	copy(h[:], d.Bytes(uint64(hashBytes)))
	return h
}

// dropUnnamed drops keys whose block is gone, and blocks that have no key.
func (c *contents) dropUnnamed() {
	used := map[hash]bool{}
	for key, k := range c.keys {
		if b, there := c.blocks[k.hash]; !there || b.life != k.life {
			delete(c.keys, key)
			continue
		}
		used[k.hash] = true
	}
	for h := range c.blocks {
		if !used[h] {
			delete(c.blocks, h)
		}
	}
}
