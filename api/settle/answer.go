package settle

import (
	"bytes"
	"encoding/json"
	"io"
	"mime"
	"strconv"
)

// Units returns what a call used by its answer, rounded up and at most UnitsMax; false if the
// answer does not say it. The answer is JSON, or events (text/event-stream) with JSON as their
// data, of which the last that has a value counts.
func (r Rule) Units(contentType string, body []byte) (units uint64, said bool) {
	documents := [][]byte{body}
	if kind, _, err := mime.ParseMediaType(contentType); err == nil && kind == "text/event-stream" {
		documents = events(body)
	}
	found := make([][]*float64, len(r.ways))
	for i, w := range r.ways {
		found[i] = make([]*float64, len(w))
	}
	for _, d := range documents {
		if root, ok := decode(d); ok {
			r.look(root, found)
		}
	}
	for _, values := range found {
		if all, ok := whole(values); ok {
			return r.units(all), true
		}
	}
	return 0, false
}

// look notes what a document has.
func (r Rule) look(root any, found [][]*float64) {
	for i, w := range r.ways {
		for k, p := range w {
			if v, ok := p.in(root); ok {
				found[i][k] = &v
			}
		}
	}
}

// whole returns values if there are all of them.
func whole(values []*float64) (all []float64, ok bool) {
	for _, v := range values {
		if v == nil {
			return nil, false
		}
		all = append(all, *v)
	}
	return all, true
}

// events returns the data of each event. Each is one line, as the APIs have it.
func events(body []byte) (data [][]byte) {
	for line := range bytes.Lines(body) {
		if rest, ok := bytes.CutPrefix(line, []byte("data:")); ok {
			data = append(data, bytes.TrimSpace(rest))
		}
	}
	return data
}

// decode reads one document. Numbers stay text, so that none is too large to be read.
func decode(text []byte) (root any, ok bool) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&root); err != nil {
		return nil, false
	}
	_, err := d.Token()
	return root, err == io.EOF
}

// in returns the number at a path, which must not be negative.
func (p path) in(at any) (v float64, ok bool) {
	for _, name := range p {
		switch x := at.(type) {
		case map[string]any:
			at = x[name]
		case []any:
			i, err := strconv.ParseUint(name, 10, 31)
			if err != nil || i >= uint64(len(x)) {
				return 0, false
			}
			at = x[i]
		default:
			return 0, false
		}
	}
	n, ok := at.(json.Number)
	if !ok {
		return 0, false
	}
	v, err := n.Float64()
	return v, err == nil && v >= 0
}
