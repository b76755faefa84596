package codec

import (
	"errors"
	"fmt"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// message is what vtprotobuf generates.
type message interface {
	SizeVT() int
	MarshalToSizedBufferVT([]byte) (int, error)
	UnmarshalVT([]byte) error
}

// ForHandler makes a handler understand both encodings.
func ForHandler() connect.HandlerOption {
	return connect.WithHandlerOptions(
		connect.WithCodec(Binary{}),
		connect.WithCodec(JSON{name: "json"}),
		connect.WithCodec(JSON{name: "json; charset=utf-8"}),
	)
}

// ForClient makes a client send and receive the binary encoding, without
// compression: messages are small, and so are the distances.
func ForClient() connect.ClientOption {
	return connect.WithClientOptions(
		connect.WithCodec(Binary{}),
		connect.WithAcceptCompression("gzip", nil, nil),
	)
}

// Binary is the binary encoding of protocol buffers.
//
// Other than the standard codec it accepts strings that are not valid UTF-8:
// the code that stores a string has to check it.
type Binary struct{}

// Name returns the name that Connect knows the encoding by.
func (Binary) Name() string { return "proto" }

// Marshal encodes a message.
func (b Binary) Marshal(m any) ([]byte, error) { return b.MarshalAppend(nil, m) }

// MarshalAppend encodes a message behind what dst already holds.
func (Binary) MarshalAppend(dst []byte, m any) ([]byte, error) {
	switch m := m.(type) {
	case message:
		start, size := len(dst), m.SizeVT()
		dst = grow(dst, size)
		_, err := m.MarshalToSizedBufferVT(dst[start:])
		return dst, err
	case proto.Message:
		return proto.MarshalOptions{}.MarshalAppend(dst, m)
	}
	return nil, fmt.Errorf("%T is not a protocol buffer", m)
}

// Unmarshal decodes a message.
func (Binary) Unmarshal(data []byte, m any) error {
	switch m := m.(type) {
	case message:
		return m.UnmarshalVT(data)
	case proto.Message:
		return proto.Unmarshal(data, m)
	}
	return fmt.Errorf("%T is not a protocol buffer", m)
}

// MarshalStable encodes a message the same way each time.
func (Binary) MarshalStable(m any) ([]byte, error) {
	p, ok := m.(proto.Message)
	if !ok {
		return nil, fmt.Errorf("%T is not a protocol buffer", m)
	}
	return proto.MarshalOptions{Deterministic: true}.Marshal(p)
}

// IsBinary reports that the encoding is not text.
func (Binary) IsBinary() bool { return true }

// JSON is the JSON mapping of protocol buffers, decoded strictly.
type JSON struct{ name string }

// Name returns the name that Connect knows the encoding by.
func (j JSON) Name() string { return j.name }

// Marshal encodes a message.
func (JSON) Marshal(m any) ([]byte, error) {
	p, ok := m.(proto.Message)
	if !ok {
		return nil, fmt.Errorf("%T is not a protocol buffer", m)
	}
	return protojson.Marshal(p)
}

// Unmarshal decodes a message and refuses fields that it does not have.
func (JSON) Unmarshal(data []byte, m any) error {
	p, ok := m.(proto.Message)
	if !ok {
		return fmt.Errorf("%T is not a protocol buffer", m)
	}
	if len(data) == 0 {
		return errors.New("the body is empty; send {} for a request without fields")
	}
	return protojson.Unmarshal(data, p)
}

func grow(b []byte, n int) []byte {
	if cap(b)-len(b) >= n {
		return b[:len(b)+n]
	}
	out := make([]byte, len(b)+n)
	copy(out, b)
	return out
}
