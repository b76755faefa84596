package tier

import (
	"errors"
	"hash/crc32"
	"io"
	"sync"
	"sync/atomic"
)

const (
	// chunkBytes have a checksum, and are read by one request.
	chunkBytes = 512 << 10
	// readsInFlight is how many requests read one block at once.
	readsInFlight = 8
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// ChunkBytes of a value have a checksum of their own, in Info.Sums.
const ChunkBytes = chunkBytes

// Chunks is how many checksums a value of n bytes has.
func Chunks(n uint64) uint64 { return max(1, (n+chunkBytes-1)/chunkBytes) }

// errDamaged means that bytes do not match their checksum.
var errDamaged = errors.New("bytes do not match their checksum")

// chunks is how many checksums a block of n bytes has; an empty one has one.
func chunks(n int) int { return max(1, (n+chunkBytes-1)/chunkBytes) }

func chunk(b []byte, i int) []byte {
	return b[min(i*chunkBytes, len(b)):min((i+1)*chunkBytes, len(b))]
}

func checksums(b []byte) []uint32 {
	sums := make([]uint32, chunks(len(b)))
	for i := range sums {
		sums[i] = crc32.Checksum(chunk(b, i), castagnoli)
	}
	return sums
}

func matches(b []byte, sums []uint32) bool {
	for i, sum := range sums {
		if crc32.Checksum(chunk(b, i), castagnoli) != sum {
			return false
		}
	}
	return true
}

// FillChunk reads chunk i of the value and returns its CRC-32C, which is cheap right after
// the bytes have come. It fails as r does.
func (v *Value) FillChunk(r io.Reader, i int) (sum uint32, err error) {
	b := chunk(v.Bytes(), i)
	if _, err := io.ReadFull(r, b); err != nil {
		return 0, err
	}
	return crc32.Checksum(b, castagnoli), nil
}

// BytesFrom are the bytes of the value from chunk i on.
func (v *Value) BytesFrom(i int) []byte { return v.Bytes()[min(i*chunkBytes, v.size):] }

// readBlock fills a value with the block at offset. Requests are in flight while what
// others have read is checked. It fails with errDamaged, or as the file does.
func readBlock(f io.ReaderAt, offset int64, v *Value, sums []uint32) error {
	pages, bytes := v.pages(), v.Bytes()
	one := func(i int) error {
		at := offset + int64(i)*chunkBytes
		if n, err := f.ReadAt(chunk(pages, i), at); n < len(chunk(bytes, i)) {
			return err
		}
		if crc32.Checksum(chunk(bytes, i), castagnoli) != sums[i] {
			return errDamaged
		}
		return nil
	}
	if len(sums) == 1 {
		return one(0)
	}
	var (
		next  atomic.Int64
		wg    sync.WaitGroup
		once  sync.Once
		first error
	)
	for range min(readsInFlight, len(sums)) {
		wg.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(sums)); i = next.Add(1) - 1 {
				if err := one(int(i)); err != nil {
					once.Do(func() { first = err })
					return
				}
			}
		})
	}
	wg.Wait()
	return first
}
