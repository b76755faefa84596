package intake

import (
	"bytes"
	"fmt"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	_ "rota/api/gen/peer/v1" // the procedures that are tried
	rotav1 "rota/api/gen/rota/v1"
)

// procedures are all that are compiled in, of rota and between its servers.
func procedures(t testing.TB) (paths []string) {
	t.Helper()
	protoregistry.GlobalFiles.RangeFiles(func(f protoreflect.FileDescriptor) bool {
		for i := range f.Services().Len() {
			s := f.Services().Get(i)
			for j := range s.Methods().Len() {
				paths = append(paths, "/"+string(s.FullName())+"/"+string(s.Methods().Get(j).Name()))
			}
		}
		return true
	})
	if len(paths) < 50 {
		t.Fatalf("only %d procedures: %q", len(paths), paths)
	}
	return paths
}

func newRequest(t testing.TB, path string) proto.Message {
	t.Helper()
	service, name, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	d, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(service))
	if err != nil {
		t.Fatal(err)
	}
	input := d.(protoreflect.ServiceDescriptor).Methods().ByName(protoreflect.Name(name)).Input()
	m, err := protoregistry.GlobalTypes.FindMessageByName(input.FullName())
	if err != nil {
		t.Fatal(err)
	}
	return m.New().Interface()
}

// element is the shortest encoding of one more element of a field, and of the
// elements within it; index makes the keys of maps differ.
func element(f protoreflect.FieldDescriptor, index int) []byte {
	b := protowire.AppendTag(nil, f.Number(), protowire.BytesType)
	switch {
	case f.IsMap():
		entry := protowire.AppendTag(nil, 1, protowire.BytesType)
		entry = protowire.AppendVarint(entry, 2)
		return protowire.AppendBytes(b, append(entry, byte('!'+index%90), byte('!'+index/90%90)))
	case f.Message() != nil, f.Kind() == protoreflect.StringKind, f.Kind() == protoreflect.BytesKind:
		return protowire.AppendBytes(b, nil)
	case f.Kind() == protoreflect.BoolKind, f.Kind() == protoreflect.EnumKind, f.Kind() == protoreflect.Uint32Kind,
		f.Kind() == protoreflect.Uint64Kind, f.Kind() == protoreflect.Int32Kind, f.Kind() == protoreflect.Int64Kind:
		if f.IsList() {
			return protowire.AppendBytes(b, make([]byte, 64)) // packed
		}
		return protowire.AppendVarint(protowire.AppendTag(nil, f.Number(), protowire.VarintType), 1)
	}
	return nil
}

// nested calls fn with every field of a message and of the messages in it, and with
// what encloses an encoding of the field.
func nested(d protoreflect.MessageDescriptor, depth int, wrap func([]byte) []byte, fn func(protoreflect.FieldDescriptor, func([]byte) []byte)) {
	for i := range d.Fields().Len() {
		f := d.Fields().Get(i)
		fn(f, wrap)
		if f.Message() == nil || f.IsMap() || depth == 0 {
			continue
		}
		nested(f.Message(), depth-1, func(b []byte) []byte {
			return wrap(protowire.AppendBytes(protowire.AppendTag(nil, f.Number(), protowire.BytesType), b))
		}, fn)
	}
}

// TestTheChargeCoversWhatDecodingTakes: many of the smallest elements, of every
// field of every request. What is charged has to be at least what is alive
// afterwards, in both encodings.
func TestTheChargeCoversWhatDecodingTakes(t *testing.T) {
	const size = 64 << 10
	worst := 0.0
	seen := map[string]bool{}
	for _, path := range procedures(t) {
		request := newRequest(t, path)
		nested(request.ProtoReflect().Descriptor(), 3, func(b []byte) []byte { return b },
			func(f protoreflect.FieldDescriptor, wrap func([]byte) []byte) {
				if seen[shape(f)] {
					return
				}
				seen[shape(f)] = true
				var body []byte
				for i := 0; len(body) < size; i++ {
					e := element(f, i)
					if e == nil {
						return
					}
					body = append(body, e...)
				}
				body = wrap(body)
				worst = max(worst, try(t, path, f, request, body))
			})
	}
	if len(seen) < 150 {
		t.Errorf("only %d shapes of fields were tried", len(seen))
	}
	t.Logf("%d shapes of fields, at worst %.0f bytes alive for a byte on the wire", len(seen), worst)
}

// shape is the same for fields that take the same memory, whatever message they are in.
func shape(f protoreflect.FieldDescriptor) string {
	oneof := f.ContainingOneof() != nil
	of := protoreflect.FullName("")
	if f.Message() != nil {
		of = f.Message().FullName()
	}
	return fmt.Sprint(f.Kind(), f.Cardinality(), f.IsPacked(), f.HasOptionalKeyword(), oneof, of)
}

// try decodes a body in both encodings, and returns how many times its size it
// takes.
func try(t *testing.T, path string, f protoreflect.FieldDescriptor, request proto.Message, body []byte) float64 {
	t.Helper()
	s := methodOf(path).request
	m := meter{limit: 1 << 40}
	if err := m.binary(s, body); err != nil {
		t.Fatalf("%s of %s: %v", f.FullName(), path, err)
	}
	vt := request.(interface{ UnmarshalVT([]byte) error })
	took := alive(t, request, func() error { return vt.UnmarshalVT(body) })
	if took > m.spent {
		t.Errorf("%s of %s: %d bytes of binary take %d, and %d are charged", f.FullName(), path, len(body), took, m.spent)
	}
	text, err := protojson.Marshal(request)
	if err != nil {
		t.Fatal(err)
	}
	text = bytes.ReplaceAll(text, []byte(", "), []byte(","))
	m = meter{limit: 1 << 40}
	if err := m.json(s, text); err != nil {
		t.Fatal(err)
	}
	if took := alive(t, request, func() error { return protojson.Unmarshal(text, request) }); took > m.spent {
		t.Errorf("%s of %s: %d bytes of JSON take %d, and %d are charged", f.FullName(), path, len(text), took, m.spent)
	}
	return float64(took) / float64(len(body))
}

// alive is what the heap has more once a message is decoded.
func alive(t *testing.T, m proto.Message, decode func() error) int64 {
	t.Helper()
	proto.Reset(m)
	before := heap()
	if err := decode(); err != nil {
		t.Fatalf("%T: %v", m, err)
	}
	took := heap() - before
	runtime.KeepAlive(m)
	return took - 16<<10 // what the runtime itself has meanwhile
}

func heap() int64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}

// FuzzTheWalkSeesWhatTheDecoderMakes: whatever the decoder accepts, the walk has
// seen every message, string and number of it, or it refuses the whole.
func FuzzTheWalkSeesWhatTheDecoderMakes(f *testing.F) {
	spec := &rotav1.ActionSpec{Command: &rotav1.Command{Argv: []string{"a", ""}, Env: map[string]string{"A": "1"}}}
	raw, err := proto.Marshal(&rotav1.SubmitActionsRequest{RequestId: "r", Actions: []*rotav1.ActionSpec{spec, {}}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(raw)
	f.Add([]byte("\x22\x00\x22\x00\x22\x00"))
	f.Add([]byte("\xa2\x80\x80\x80\x80\x01\x00"))                         // a number beyond 32 bits, which some decoders cut off
	f.Add([]byte("\x22\x82\x80\x80\x80\x80\x80\x80\x80\x80\x7f\x00\x00")) // a length beyond 64 bits
	f.Fuzz(func(t *testing.T, body []byte) {
		m := meter{limit: 1 << 40}
		walked := m.binary(methodOf("/rota.v1.ActionService/SubmitActions").request, body)
		request := &rotav1.SubmitActionsRequest{}
		if request.UnmarshalVT(body) != nil || walked != nil {
			return
		}
		if made := footprint(request.ProtoReflect()) - structSize(request); made > m.spent {
			t.Errorf("%q makes %d bytes, and %d are charged", body, made, m.spent)
		}
	})
}

func structSize(m proto.Message) int64 { return int64(reflect.TypeOf(m).Elem().Size()) }

// footprint is the least that a message takes, counted from what it became.
func footprint(m protoreflect.Message) int64 {
	n := structSize(m.Interface()) + int64(len(m.GetUnknown()))
	one := func(f protoreflect.FieldDescriptor, v protoreflect.Value) {
		switch {
		case f.Message() != nil:
			n += 8 + footprint(v.Message())
		case f.Kind() == protoreflect.StringKind:
			n += 16 + int64(len(v.String()))
		case f.Kind() == protoreflect.BytesKind:
			n += 24 + int64(len(v.Bytes()))
		}
	}
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.IsMap():
			v.Map().Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
				n += 16 + int64(len(k.String()))
				one(f.MapValue(), v)
				return true
			})
		case f.IsList():
			for i := range v.List().Len() {
				one(f, v.List().Get(i))
			}
		default:
			if f.Message() != nil {
				one(f, v)
			}
		}
		return true
	})
	return n
}
