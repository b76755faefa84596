package tensor

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"

	"github.com/zeebo/blake3"

	"rota/agent/internal/record"
)

const manifestMagic = "rotastm\x01"

// The kinds of frames of a manifest, in this order: one state, its tensors, one end.
const (
	kindState  = 1 // string: key
	kindTensor = 2 // string: Tensor as JSON; hashes of its blocks
	kindEnd    = 3 // hash of all that is before
)

// encodeManifest is the file that says what a state is made of.
func encodeManifest(k Key, tensors []*tensor) []byte {
	b := []byte(manifestMagic)
	b = record.Append(b, record.AppendString([]byte{kindState}, k.String()))
	for _, t := range tensors {
		spec, err := json.Marshal(t.Tensor)
		if err != nil {
			panic("tensor: " + err.Error()) // strings and numbers always can be encoded
		}
		p := record.AppendString([]byte{kindTensor}, spec)
		p = binary.AppendUvarint(p, uint64(len(t.hashes)))
		for _, h := range t.hashes {
			p = append(p, h[:]...)
		}
		b = record.Append(b, p)
	}
	sum := blake3.Sum256(b)
	return record.Append(b, append([]byte{kindEnd}, sum[:]...))
}

// decodeManifest fails with ErrCorrupt unless every byte is as it was written.
func decodeManifest(data []byte) (k Key, tensors []*tensor, err error) {
	rest, ok := bytes.CutPrefix(data, []byte(manifestMagic))
	if !ok {
		return k, nil, fmt.Errorf("%w: it is no manifest of a state", ErrCorrupt)
	}
	for n := 0; len(rest) > 0; n++ {
		payload, size, err := record.Cut(rest)
		if err != nil || size == 0 || len(payload) == 0 {
			return k, nil, fmt.Errorf("%w: frame %d is damaged or cut", ErrCorrupt, n)
		}
		d := &record.Decoder{Rest: payload}
		switch kind := d.Byte(); {
		case kind == kindState && n == 0:
			if k, err = ParseKey(d.String()); err != nil {
				return k, nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
			}
		case kind == kindTensor && n > 0:
			t, err := decodeTensor(d)
			if err != nil {
				return k, nil, err
			}
			tensors = append(tensors, t)
		case kind == kindEnd && n > 1 && size == len(rest):
			if sum := blake3.Sum256(data[:len(data)-size]); !bytes.Equal(sum[:], d.Rest) {
				return k, nil, ErrCorrupt
			}
			return k, tensors, placeAll(tensors)
		default:
			return k, nil, fmt.Errorf("%w: frame %d is out of order", ErrCorrupt, n)
		}
		rest = rest[size:]
	}
	return k, nil, fmt.Errorf("%w: the end is missing", ErrCorrupt)
}

func decodeTensor(d *record.Decoder) (*tensor, error) {
	t := &tensor{}
	if err := json.Unmarshal([]byte(d.String()), &t.Tensor); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	if err := t.check(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	n := d.Uvarint()
	if n != uint64(blocksOf(t.bytes())) || uint64(len(d.Rest)) != n*uint64(len(hash{})) {
		return nil, fmt.Errorf("%w: tensor %s has another number of blocks", ErrCorrupt, t.Name)
	}
	t.hashes = make([]hash, n)
	for i := range t.hashes {
		copy(t.hashes[i][:], d.Bytes(uint64(len(hash{}))))
	}
	return t, nil
}
