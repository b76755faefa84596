package journal

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"

	"rota/agent/plan"
)

// A file is the magic and then frames:
//
//	length of payload, CRC of length, CRC of payload (4 bytes each), payload
//
// The length has a checksum of its own so that a flipped bit in it cannot make
// a whole frame look like a torn one. A payload is a sequence of records, a
// kind and its fields as uvarints; strings have their length before them.
const (
	magic        = "rotajnl\x01"
	headerSize   = 12
	payloadLimit = 1 << 24
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

type kind byte

const (
	kindIdentity    kind = 1 // string: journal ID
	kindBoot        kind = 2 // string: boot ID, of everything that follows
	kindIncarnation kind = 3 // uvarint
	kindAccepted    kind = 4 // key
	kindReported    kind = 5 // key
	kindForgotten   kind = 6 // key
)

var (
	errMagic   = errors.New("not a journal")
	errHeader  = errors.New("frame header does not match its checksum")
	errPayload = errors.New("frame does not match its checksum")
	errRecord  = errors.New("malformed record")
	errNoID    = errors.New("no journal ID at the beginning")
)

// content is what a journal says.
type content struct {
	id          string
	boot        string
	incarnation uint64
	attempts    map[plan.Key]State
}

// decode reads a file and returns how many bytes of it are whole frames; what
// is after them is the torn beginning of a frame.
func decode(data []byte) (c content, valid int, err error) {
	c.attempts = map[plan.Key]State{}
	rest, ok := bytes.CutPrefix(data, []byte(magic))
	if !ok {
		return c, 0, errMagic
	}
	for {
		payload, n, err := cutFrame(rest)
		if err != nil {
			return c, 0, fmt.Errorf("at byte %d: %w", len(data)-len(rest), err)
		}
		if n == 0 {
			break
		}
		if err := c.apply(payload); err != nil {
			return c, 0, fmt.Errorf("at byte %d: %w", len(data)-len(rest), err)
		}
		rest = rest[n:]
	}
	if c.id == "" {
		return c, 0, errNoID
	}
	return c, len(data) - len(rest), nil
}

// cutFrame returns the first frame of data and its size with header, or 0 if
// data ends before the frame does.
func cutFrame(data []byte) (payload []byte, n int, err error) {
	if len(data) < headerSize {
		return nil, 0, nil
	}
	length := binary.LittleEndian.Uint32(data)
	if crc32.Checksum(data[:4], castagnoli) != binary.LittleEndian.Uint32(data[4:]) || length > payloadLimit {
		return nil, 0, errHeader
	}
	n = headerSize + int(length)
	if len(data) < n {
		return nil, 0, nil
	}
	payload = data[headerSize:n]
	if crc32.Checksum(payload, castagnoli) != binary.LittleEndian.Uint32(data[8:]) {
		return nil, 0, errPayload
	}
	return payload, n, nil
}

func appendFrame(b, payload []byte) []byte {
	var header [headerSize]byte
	binary.LittleEndian.PutUint32(header[:], uint32(len(payload)))
	binary.LittleEndian.PutUint32(header[4:], crc32.Checksum(header[:4], castagnoli))
	binary.LittleEndian.PutUint32(header[8:], crc32.Checksum(payload, castagnoli))
	return append(append(b, header[:]...), payload...)
}

// apply changes the content by the records of one frame.
func (c *content) apply(payload []byte) error {
	d := decoder{rest: payload}
	for len(d.rest) > 0 {
		switch k := kind(d.byte()); k {
		case kindIdentity:
			c.id = d.string()
		case kindBoot:
			c.reboot(d.string())
		case kindIncarnation:
			c.setIncarnation(d.uvarint())
		case kindAccepted, kindReported, kindForgotten:
			c.setAttempt(k, d.key())
		default:
			return errRecord
		}
		if d.failed {
			return errRecord
		}
	}
	return nil
}

func (c *content) reboot(bootID string) {
	if bootID == c.boot {
		return
	}
	c.boot = bootID
	for key, s := range c.attempts {
		s.Rebooted = true
		c.attempts[key] = s
	}
}

func (c *content) setIncarnation(incarnation uint64) {
	c.incarnation = incarnation
	for key := range c.attempts {
		if key.Incarnation != incarnation {
			delete(c.attempts, key)
		}
	}
}

func (c *content) setAttempt(k kind, key plan.Key) {
	switch s, known := c.attempts[key]; {
	case k == kindAccepted:
		c.attempts[key] = State{}
	case k == kindReported && known:
		s.Reported = true
		c.attempts[key] = s
	case k == kindForgotten:
		delete(c.attempts, key)
	}
}

// encode writes the content as a new file. What was accepted before the last
// boot comes before the boot record, which is how it is told apart.
func (c *content) encode() []byte {
	var before, after []byte
	for _, key := range c.sortedKeys() {
		s := c.attempts[key]
		b := keyRecords(kindAccepted, []plan.Key{key})
		if s.Reported {
			b = append(b, keyRecords(kindReported, []plan.Key{key})...)
		}
		if s.Rebooted {
			before = append(before, b...)
		} else {
			after = append(after, b...)
		}
	}
	payload := slices.Concat(stringRecord(kindIdentity, c.id), incarnationRecord(c.incarnation),
		before, bootRecord(c.boot), after)
	return appendFrame([]byte(magic), payload)
}

func (c *content) sortedKeys() []plan.Key {
	keys := make([]plan.Key, 0, len(c.attempts))
	for key := range c.attempts {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, func(a, b plan.Key) int {
		return cmp.Or(cmp.Compare(a.Action, b.Action), cmp.Compare(a.Attempt, b.Attempt), cmp.Compare(a.Incarnation, b.Incarnation))
	})
	return keys
}

func bootRecord(id string) []byte { return stringRecord(kindBoot, id) }

func stringRecord(k kind, s string) []byte {
	return append(binary.AppendUvarint([]byte{byte(k)}, uint64(len(s))), s...)
}

func incarnationRecord(incarnation uint64) []byte {
	return binary.AppendUvarint([]byte{byte(kindIncarnation)}, incarnation)
}

func keyRecords(k kind, keys []plan.Key) []byte {
	var b []byte
	for _, key := range keys {
		b = append(b, byte(k))
		b = binary.AppendUvarint(b, key.Action)
		b = binary.AppendUvarint(b, uint64(key.Attempt))
		b = binary.AppendUvarint(b, key.Incarnation)
	}
	return b
}

// decoder reads fields; after the first that is malformed it yields zeros.
type decoder struct {
	rest   []byte
	failed bool
}

func (d *decoder) byte() byte {
	if len(d.rest) == 0 {
		d.failed = true
		return 0
	}
	b := d.rest[0]
	d.rest = d.rest[1:]
	return b
}

func (d *decoder) uvarint() uint64 {
	v, n := binary.Uvarint(d.rest)
	if n <= 0 {
		d.failed, d.rest = true, nil
		return 0
	}
	d.rest = d.rest[n:]
	return v
}

func (d *decoder) string() string {
	n := d.uvarint()
	if n > uint64(len(d.rest)) {
		d.failed, d.rest = true, nil
		return ""
	}
	s := string(d.rest[:n])
	d.rest = d.rest[n:]
	return s
}

func (d *decoder) key() plan.Key {
	key := plan.Key{Action: d.uvarint()}
	attempt := d.uvarint()
	key.Attempt, key.Incarnation = uint32(attempt), d.uvarint()
	d.failed = d.failed || attempt > 1<<32-1
	return key
}
