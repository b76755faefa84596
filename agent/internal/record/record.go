package record

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
)

const (
	// HeaderSize is the number of bytes of a frame before its payload.
	HeaderSize = 12
	// PayloadMax is the largest payload in bytes.
	PayloadMax = 1 << 24
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

var (
	// ErrHeader means that the header of a frame is damaged.
	ErrHeader = errors.New("frame header does not match its checksum")
	// ErrPayload means that the payload of a frame is damaged.
	ErrPayload = errors.New("frame does not match its checksum")
)

// Append adds a frame to b. The payload has at most PayloadMax bytes.
func Append(b, payload []byte) []byte {
	var header [HeaderSize]byte
	binary.LittleEndian.PutUint32(header[:], uint32(len(payload)))
	binary.LittleEndian.PutUint32(header[4:], crc32.Checksum(header[:4], castagnoli))
	binary.LittleEndian.PutUint32(header[8:], crc32.Checksum(payload, castagnoli))
	return append(append(b, header[:]...), payload...)
}

// Cut returns the payload of the first frame of data and the frame's size in bytes, or
// 0 if data ends before the frame does. It fails with ErrHeader or ErrPayload.
func Cut(data []byte) (payload []byte, n int, err error) {
	if len(data) < HeaderSize {
		return nil, 0, nil
	}
	length := binary.LittleEndian.Uint32(data)
	if crc32.Checksum(data[:4], castagnoli) != binary.LittleEndian.Uint32(data[4:]) || length > PayloadMax {
		return nil, 0, ErrHeader
	}
	n = HeaderSize + int(length)
	if len(data) < n {
		return nil, 0, nil
	}
	payload = data[HeaderSize:n]
	if crc32.Checksum(payload, castagnoli) != binary.LittleEndian.Uint32(data[8:]) {
		return nil, 0, ErrPayload
	}
	return payload, n, nil
}

// AppendString adds a string with its length before it.
func AppendString[T string | []byte](b []byte, s T) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// Decoder reads the fields of a payload. After the first that is malformed it yields
// zeros.
type Decoder struct {
	Rest   []byte // what was not read yet
	Failed bool
}

// Byte reads one byte.
func (d *Decoder) Byte() byte {
	b := d.Bytes(1)
	if b == nil {
		return 0
	}
	return b[0]
}

// Bytes reads n bytes, which stay part of the payload; nil if there are fewer.
func (d *Decoder) Bytes(n uint64) []byte {
	if n > uint64(len(d.Rest)) {
		d.Failed, d.Rest = true, nil
		return nil
	}
	b := d.Rest[:n]
	d.Rest = d.Rest[n:]
	return b
}

// Uvarint reads a number.
func (d *Decoder) Uvarint() uint64 {
	v, n := binary.Uvarint(d.Rest)
	if n <= 0 {
		d.Failed, d.Rest = true, nil
		return 0
	}
	d.Rest = d.Rest[n:]
	return v
}

// String reads what AppendString has written.
func (d *Decoder) String() string { return string(d.Bytes(d.Uvarint())) }
