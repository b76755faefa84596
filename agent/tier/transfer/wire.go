package transfer

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"rota/agent/internal/record"
	"rota/agent/tier"
)

const (
	// messageBytesMax is the longest message: a key of 16 KiB, and checksums.
	messageBytesMax = 64 << 10
	// pageValues and pageBytes bound a page of a listing. A page has less than a step more.
	pageValues = 1024
	pageBytes  = 1 << 20
	// requestBytesMax bounds what the source reads of a request: a page of keys.
	requestBytesMax = 16 << 20
)

// The kinds of messages.
const (
	kindTotals = 1 // uvarints: values, bytes
	kindListed = 2 // an Info
	kindEnd    = 3 // uvarint: where the listing goes on; 0: nowhere
	kindWant   = 4 // a want
	kindData   = 5 // uvarint: first chunk; an Info without key and hash. The bytes follow
	kindGone   = 6 // there is no such value any more
	kindHash   = 7 // 32 bytes
)

// The requests.
const (
	requestList   = "list"
	requestHash   = "hash"
	requestValues = "values"
)

// codeHeader says on every answer of a Source how it went; the words are below.
const codeHeader = "Rota-Transfer"

const (
	codeOK        = "ok"
	codeUnknown   = "unknown"
	codeNoCache   = "no-cache"
	codeBusy      = "busy"
	codeMalformed = "malformed"
)

// errMalformed means that a message breaks the protocol.
var errMalformed = errors.New("malformed message")

// want asks for a value, or for its hash.
type want struct {
	key string
	// check has the source check what it has in memory before it sends it.
	check bool
	// chunk is the first that is wanted. If it is not 0, size and sums say of which value;
	// of any other all is sent.
	chunk uint64
	size  uint64
	sums  []uint32
}

// data announces the bytes of a value from a chunk on.
type data struct {
	chunk uint64
	info  tier.Info
}

// appendMessage adds a message with its length before it: four bytes, the lowest first.
func appendMessage(b, payload []byte) []byte {
	return append(binary.LittleEndian.AppendUint32(b, uint32(len(payload))), payload...)
}

func appendTotals(b []byte, values, bytes uint64) []byte {
	p := binary.AppendUvarint([]byte{kindTotals}, values)
	return appendMessage(b, binary.AppendUvarint(p, bytes))
}

func appendEnd(b []byte, next uint64) []byte {
	return appendMessage(b, binary.AppendUvarint([]byte{kindEnd}, next))
}

func appendGone(b []byte) []byte { return appendMessage(b, []byte{kindGone}) }

func appendHash(b []byte, h tier.Hash) []byte {
	return appendMessage(b, append([]byte{kindHash}, h[:]...))
}

func appendListed(b []byte, i tier.Info) []byte {
	p := record.AppendString([]byte{kindListed}, i.Key)
	if i.Hashed {
		p = append(append(p, 1), i.Hash[:]...)
	} else {
		p = append(p, 0)
	}
	return appendMessage(b, appendContent(p, i))
}

func appendData(b []byte, d data) []byte {
	p := binary.AppendUvarint([]byte{kindData}, d.chunk)
	return appendMessage(b, appendContent(p, d.info))
}

func appendWant(b []byte, w want) []byte {
	p := record.AppendString([]byte{kindWant}, w.key)
	if w.check {
		p = append(p, 1)
	} else {
		p = append(p, 0)
	}
	if p = binary.AppendUvarint(p, w.chunk); w.chunk > 0 {
		p = appendSums(binary.AppendUvarint(p, w.size), w.sums)
	}
	return appendMessage(b, p)
}

// appendContent adds size, time to live and checksums.
func appendContent(p []byte, i tier.Info) []byte {
	p = binary.AppendUvarint(p, i.Size)
	left := uint64(0) // never
	if i.Left >= 0 {
		left = 1 + uint64(i.Left/time.Millisecond)
	}
	return appendSums(binary.AppendUvarint(p, left), i.Sums)
}

func appendSums(p []byte, sums []uint32) []byte {
	for _, sum := range sums {
		p = binary.LittleEndian.AppendUint32(p, sum)
	}
	return p
}

// fits says whether a value can be described in a message.
func fits(i tier.Info) bool {
	const others = 128
	return others+len(i.Key)+4*len(i.Sums) <= messageBytesMax
}

// messages reads messages, and what is between them.
type messages struct{ r *bufio.Reader }

// next returns the kind of the next message and its fields. It fails with io.EOF at the end,
// and with errMalformed.
func (m messages) next() (kind byte, d *record.Decoder, err error) {
	var header [4]byte
	if _, err := io.ReadFull(m.r, header[:]); err != nil {
		return 0, nil, err
	}
	n := binary.LittleEndian.Uint32(header[:])
	if n == 0 || n > messageBytesMax {
		return 0, nil, fmt.Errorf("%w: it has %d bytes, and 1 to %d are allowed", errMalformed, n, messageBytesMax)
	}
	payload := make([]byte, n)
	if _, err := io.ReadFull(m.r, payload); err != nil {
		return 0, nil, err
	}
	d = &record.Decoder{Rest: payload}
	return d.Byte(), d, nil
}

// done fails with errMalformed if a message was too short or too long for its kind.
func done(kind byte, d *record.Decoder) error {
	if d.Failed || len(d.Rest) > 0 {
		return fmt.Errorf("%w of kind %d", errMalformed, kind)
	}
	return nil
}

func unexpected(kind byte) error {
	return fmt.Errorf("%w: kind %d where it may not be", errMalformed, kind)
}

func readKey(d *record.Decoder) string {
	key := d.String()
	if len(key) > tier.KeyBytesMax {
		d.Failed = true
	}
	return key
}

// readFlag reads a byte that is 0 or 1.
func readFlag(d *record.Decoder) bool {
	b := d.Byte()
	d.Failed = d.Failed || b > 1
	return b == 1
}

func readHash(d *record.Decoder) (h tier.Hash) {
	copy(h[:], d.Bytes(uint64(len(h))))
	return h
}

func readListed(d *record.Decoder) (i tier.Info) {
	i.Key = readKey(d)
	if i.Hashed = readFlag(d); i.Hashed {
		i.Hash = readHash(d)
	}
	readContent(d, &i)
	return i
}

func readData(d *record.Decoder) (v data) {
	v.chunk = d.Uvarint()
	readContent(d, &v.info)
	d.Failed = d.Failed || v.chunk >= uint64(len(v.info.Sums))
	return v
}

func readWant(d *record.Decoder) (w want) {
	w.key, w.check, w.chunk = readKey(d), readFlag(d), d.Uvarint()
	if w.chunk > 0 {
		w.size = d.Uvarint()
		w.sums = readSums(d, w.size)
		d.Failed = d.Failed || w.chunk >= uint64(len(w.sums))
	}
	return w
}

func readContent(d *record.Decoder, i *tier.Info) {
	i.Size = d.Uvarint()
	i.Left = -1
	if left := d.Uvarint(); left > 0 {
		i.Left = time.Duration(min(left-1, math.MaxInt64/uint64(time.Millisecond))) * time.Millisecond
	}
	i.Sums = readSums(d, i.Size)
}

// readSums reads the rest of a message, which is the checksums of a value.
func readSums(d *record.Decoder, size uint64) []uint32 {
	if size > math.MaxInt64-tier.ChunkBytes || uint64(len(d.Rest)) != 4*tier.Chunks(size) {
		d.Failed = true
		return nil
	}
	sums := make([]uint32, 0, len(d.Rest)/4)
	for b := d.Bytes(uint64(len(d.Rest))); len(b) > 0; b = b[4:] {
		sums = append(sums, binary.LittleEndian.Uint32(b))
	}
	return sums
}
