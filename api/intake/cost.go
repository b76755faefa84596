package intake

import (
	"errors"

	"google.golang.org/protobuf/encoding/protowire"
)

var errMalformed = errors.New("it is no protocol buffer of its type")

// meter adds up what decoding a message will allocate, up to a limit.
type meter struct{ spent, limit int64 }

// errLimit ends a walk that has found more than is allowed.
var errLimit = errors.New("limit reached")

func (m *meter) add(n int64) error {
	if m.spent += n; m.spent > m.limit {
		return errLimit
	}
	return nil
}

// binary walks the binary encoding of a message. It accepts no more than the
// decoder does: whatever it cannot follow to the end is an error.
func (m *meter) binary(s *schema, b []byte) error {
	for len(b) > 0 {
		number, wire, n := protowire.ConsumeTag(b)
		if n < 0 {
			return errMalformed
		}
		size := protowire.ConsumeFieldValue(number, wire, b[n:])
		if size < 0 {
			return errMalformed
		}
		value := b[n : n+size]
		b = b[n+size:]
		f, known := s.fields[number]
		if !known {
			f = field{cost: int64(3 * (n + size))} // decoders keep what they do not know
		}
		if err := m.value(f, wire, value); err != nil {
			return err
		}
	}
	return nil
}

// value adds one occurrence of a field.
func (m *meter) value(f field, wire protowire.Type, value []byte) error {
	if wire != protowire.BytesType {
		return m.add(f.cost)
	}
	content, _ := protowire.ConsumeBytes(value)
	switch {
	case f.message != nil:
		if err := m.add(f.cost); err != nil {
			return err
		}
		return m.binary(f.message, content)
	case f.packable:
		return m.add(f.cost * int64(1+numbers(f.wire, content)))
	}
	return m.add(f.cost + int64(len(content)+len(content)/8))
}

// numbers counts the numbers in a packed list.
func numbers(wire protowire.Type, b []byte) (n int) {
	switch wire {
	case protowire.Fixed32Type:
		return len(b) / 4
	case protowire.Fixed64Type:
		return len(b) / 8
	}
	for _, c := range b {
		if c < 0x80 { // the last byte of a number
			n++
		}
	}
	return n
}

// json adds up what a message in JSON will allocate. It does not match names with
// fields: an object counts as the largest message that it can be.
func (m *meter) json(s *schema, b []byte) error {
	if err := m.add(2 * int64(len(b))); err != nil {
		return err
	}
	colon := int64(stringBytes)
	if s.maps {
		colon = entryBytes
	}
	quoted := false
	for i := 0; i < len(b); i++ {
		if quoted {
			switch b[i] {
			case '\\':
				i++
			case '"':
				quoted = false
			}
			continue
		}
		var cost int64
		switch b[i] {
		case '"':
			quoted = true
		case '{':
			cost = s.largest
		case ':':
			cost = colon
		case ',', '[':
			cost = pointerBytes
		}
		if err := m.add(cost); err != nil {
			return err
		}
	}
	return nil
}
