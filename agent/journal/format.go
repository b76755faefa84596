package journal

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"rota/agent/internal/record"
	"rota/agent/plan"
)

// A file is the magic and then frames of package record. A payload is a sequence of
// records, a kind and its fields as uvarints; strings have their length before them.
const magic = "rotajnl\x01"

type kind byte

const (
	kindIdentity    kind = 1 // string: journal ID
	kindBoot        kind = 2 // string: boot ID, of everything that follows
	kindIncarnation kind = 3 // uvarint
	kindAccepted    kind = 4 // key
	kindReported    kind = 5 // key
	kindForgotten   kind = 6 // key
	kindMachine     kind = 7 // string: the machine that the cluster knows the node as
)

var (
	errMagic  = errors.New("not a journal")
	errRecord = errors.New("malformed record")
	errNoID   = errors.New("no journal ID at the beginning")
)

// content is what a journal says.
type content struct {
	id          string
	boot        string
	incarnation uint64
	attempts    map[plan.Key]State
	machine     string // empty in an older journal
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
		payload, n, err := record.Cut(rest)
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

// apply changes the content by the records of one frame.
func (c *content) apply(payload []byte) error {
	d := decoder{record.Decoder{Rest: payload}}
	for len(d.Rest) > 0 {
		switch k := kind(d.Byte()); k {
		case kindIdentity:
			c.id = d.String()
		case kindBoot:
			c.reboot(d.String())
		case kindIncarnation:
			c.setIncarnation(d.Uvarint())
		case kindMachine:
			c.machine = d.String()
		case kindAccepted, kindReported, kindForgotten:
			c.setAttempt(k, d.key())
		default:
			return errRecord
		}
		if d.Failed {
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
	payload := slices.Concat(stringRecord(kindIdentity, c.id), incarnationRecord(c.incarnation), stringRecord(kindMachine, c.machine),
		before, bootRecord(c.boot), after)
	return record.Append([]byte(magic), payload)
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
	return record.AppendString([]byte{byte(k)}, s)
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

// decoder reads keys, too.
type decoder struct{ record.Decoder }

func (d *decoder) key() plan.Key {
	key := plan.Key{Action: d.Uvarint()}
	attempt := d.Uvarint()
	key.Attempt, key.Incarnation = uint32(attempt), d.Uvarint()
	d.Failed = d.Failed || attempt > 1<<32-1
	return key
}
