package fsm

import (
	"errors"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"

	logv1 "rota/api/gen/log/v1"
)

// A decoder keeps fields that it does not know and says nothing. For the log that is not
// good enough: a replica that goes on without them does something else than the others.
// So each entry is looked through before it is applied.

// knownMessage is what this build knows of a message of the log.
type knownMessage struct {
	name protoreflect.Name
	// fields has the fields by their numbers.
	fields []knownField
}

type knownField struct {
	known bool
	// message is what the field holds; nil if that is no message.
	message *knownMessage
}

var entryFields = fieldsOf((&logv1.Entry{}).ProtoReflect().Descriptor(), map[protoreflect.FullName]*knownMessage{})

var errMalformedEntry = errors.New("malformed")

// fieldsOf describes a message and all that it holds. Each message is described once, as
// messages may hold each other.
func fieldsOf(d protoreflect.MessageDescriptor, done map[protoreflect.FullName]*knownMessage) *knownMessage {
	if k := done[d.FullName()]; k != nil {
		return k
	}
	k := &knownMessage{name: d.Name()}
	done[d.FullName()] = k
	for i := range d.Fields().Len() {
		f := d.Fields().Get(i)
		field := knownField{known: true}
		if f.Message() != nil {
			field.message = fieldsOf(f.Message(), done)
		}
		k.add(f.Number(), field)
	}
	return k
}

func (k *knownMessage) add(number protowire.Number, f knownField) {
	for int(number) >= len(k.fields) {
		k.fields = append(k.fields, knownField{})
	}
	k.fields[number] = f
}

// check returns an error that names the first field that this build does not know.
func (k *knownMessage) check(b []byte) error {
	for len(b) > 0 {
		number, wire, n := protowire.ConsumeTag(b)
		if n < 0 {
			return errMalformedEntry
		}
		size := protowire.ConsumeFieldValue(number, wire, b[n:])
		if size < 0 {
			return errMalformedEntry
		}
		if int(number) >= len(k.fields) || !k.fields[number].known {
			return fmt.Errorf("field %d of %s is not known to this build: upgrade this server to the release that the leader runs", number, k.name)
		}
		if m := k.fields[number].message; m != nil && wire == protowire.BytesType {
			content, _ := protowire.ConsumeBytes(b[n : n+size])
			if err := m.check(content); err != nil {
				return err
			}
		}
		b = b[n+size:]
	}
	return nil
}
