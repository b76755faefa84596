package intake

import (
	"reflect"
	"strings"
	"sync"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// What decoding allocates, in bytes, beside the bytes of strings themselves.
const (
	// pointerBytes is an element of a list of messages, while the list grows.
	pointerBytes = 32
	// stringBytes is the same of a list of strings, with the rounding of its text.
	stringBytes = 64
	// scalarBytes is a number in a list that grows, or behind a pointer.
	scalarBytes = 32
	// entryBytes is an entry of a map.
	entryBytes = 192
)

// schema is a message type as far as its memory is concerned.
type schema struct {
	// size is of the Go struct, as the allocator rounds it, and what points to it.
	size int64
	// largest is the size of the largest message in it, or of itself.
	largest int64
	// maps: it holds a map, or a message in it does.
	maps   bool
	fields map[protowire.Number]field
}

// field is a field of a message.
type field struct {
	// cost is of each occurrence.
	cost int64
	// packable: the field may hold many numbers, and then each has the cost.
	packable bool
	// wire is the encoding of one number of a packable field.
	wire protowire.Type
	// message is what the field holds, nil unless it is a message or a map entry.
	message *schema
}

// method is a procedure as far as its requests are concerned.
type method struct {
	request *schema
	streams bool
}

var (
	methods sync.Map // path to *method, nil if there is none
	schemas = schemaTable{all: map[protoreflect.FullName]*schema{}}
)

// methodOf finds the procedure of a path, "/package.Service/Method"; nil if it is
// not known here.
func methodOf(path string) *method {
	if m, ok := methods.Load(path); ok {
		return m.(*method)
	}
	service, name, ok := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	if !ok {
		return nil
	}
	d, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(service))
	if err != nil {
		return nil
	}
	s, ok := d.(protoreflect.ServiceDescriptor)
	if !ok {
		return nil
	}
	md := s.Methods().ByName(protoreflect.Name(name))
	if md == nil {
		return nil
	}
	m := &method{request: schemas.of(md.Input()), streams: md.IsStreamingClient() || md.IsStreamingServer()}
	methods.Store(path, m)
	return m
}

// schemaTable makes schemas, each once.
type schemaTable struct {
	mu  sync.Mutex
	all map[protoreflect.FullName]*schema
}

func (t *schemaTable) of(d protoreflect.MessageDescriptor) *schema {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.make(d)
	for t.spread() { // messages may hold each other
	}
	return s
}

// make describes a message and all that it holds.
func (t *schemaTable) make(d protoreflect.MessageDescriptor) *schema {
	if s, ok := t.all[d.FullName()]; ok {
		return s
	}
	s := &schema{size: structBytes(d) + pointerBytes, fields: map[protowire.Number]field{}}
	s.largest = s.size
	t.all[d.FullName()] = s // before its fields: it may hold itself
	for i := range d.Fields().Len() {
		f := d.Fields().Get(i)
		s.fields[f.Number()] = t.field(f)
		s.maps = s.maps || f.IsMap()
	}
	return s
}

func (t *schemaTable) field(d protoreflect.FieldDescriptor) field {
	switch d.Kind() {
	case protoreflect.MessageKind, protoreflect.GroupKind:
		m := t.make(d.Message())
		return field{cost: m.size, message: m}
	case protoreflect.StringKind, protoreflect.BytesKind:
		return field{cost: stringBytes}
	case protoreflect.Fixed32Kind, protoreflect.Sfixed32Kind, protoreflect.FloatKind:
		return field{cost: scalarBytes, packable: d.IsList(), wire: protowire.Fixed32Type}
	case protoreflect.Fixed64Kind, protoreflect.Sfixed64Kind, protoreflect.DoubleKind:
		return field{cost: scalarBytes, packable: d.IsList(), wire: protowire.Fixed64Type}
	}
	return field{cost: scalarBytes, packable: d.IsList(), wire: protowire.VarintType}
}

// spread carries what is known of messages one step up, to those that hold them,
// and reports whether that changed anything.
func (t *schemaTable) spread() (changed bool) {
	for _, s := range t.all {
		for _, f := range s.fields {
			if f.message == nil {
				continue
			}
			if f.message.largest > s.largest || f.message.maps && !s.maps {
				s.largest, s.maps = max(s.largest, f.message.largest), s.maps || f.message.maps
				changed = true
			}
		}
	}
	return changed
}

// structBytes is what the allocator gives for one message: the size of its Go
// type, and what rounding may add.
func structBytes(d protoreflect.MessageDescriptor) int64 {
	if d.IsMapEntry() {
		return entryBytes
	}
	t, err := protoregistry.GlobalTypes.FindMessageByName(d.FullName())
	if err != nil {
		return 1 << 10 // not compiled in: an estimate that is too high
	}
	size := int64(reflect.TypeOf(t.Zero().Interface()).Elem().Size())
	return size + size/8 + 16
}
