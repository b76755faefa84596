package gateway

import (
	"errors"
	"io"
	"net/http"
	"sync/atomic"
)

var (
	// errBytes: --bytes-max is reached.
	errBytes = errors.New("the requests and answers at this gateway have too many bytes together")
	// errTooLarge: one of them alone is too large.
	errTooLarge = errors.New("it is too large")
)

const (
	// bodiesLeave is the part of --bytes-max that bodies leave to requests that run: the eighth. A full
	// gateway refuses new requests before it ends others.
	bodiesLeave = 8
	// smallBytes is what a request that runs may have for each thing, however full the gateway is.
	smallBytes = 1 << 20
	// headBytes is more than a message to a worker has besides the body.
	headBytes = 1 << 20
)

// tooManyBytes is errBytes as an answer.
var tooManyBytes = &refusal{status: http.StatusTooManyRequests, code: "too_many_bytes", retryAfter: 1,
	message: errBytes.Error() + "; send the request again later, or to another gateway"}

// holding is what a request holds bytes for.
type holding int

const (
	ofBody    holding = iota // as the client has sent it
	ofMessage                // as a worker is sent it
	ofAnswer                 // whole
	ofFailure                // an answer that is delivered if no other one comes
	ofEvents                 // of a stream, that arrive and leave
	ofText                   // of a stream, that another worker would go on behind
	holdings
)

// share is what one request holds of the bytes of all. Only the goroutine of the request uses it.
type share struct {
	all  *atomic.Int64
	max  int64
	held [holdings]int64
}

// hold says how many bytes the request holds for something. It is an error if more than before are
// too many: for a body, if what runs would have no room left, and for the rest, if they are not few.
// They are counted all the same, until the request lets go of them.
func (s *share) hold(of holding, n int) error {
	more := int64(n) - s.held[of]
	if more == 0 {
		return nil
	}
	s.held[of] = int64(n)
	all := s.all.Add(more)
	switch {
	case more < 0:
	case of == ofBody && all > s.max-s.max/bodiesLeave:
		return errBytes
	case all > s.max && n > smallBytes:
		return errBytes
	}
	return nil
}

// drop lets go of what is held for something.
func (s *share) drop(of holding) { _ = s.hold(of, 0) } // less is never too much

// end lets go of everything.
func (s *share) end() {
	for of := range holdings {
		s.drop(of)
	}
}

// read reads to the end, at most limit bytes. length is how many there are said to be; -1: not said.
// What is read needs one byte more, in which its end is seen.
func (s *share) read(r io.Reader, of holding, length, limit int64) ([]byte, error) {
	var raw []byte
	for room := max(min(length, 1<<20)+1, 4096); ; {
		if len(raw) == cap(raw) {
			if err := s.hold(of, int(room)); err != nil {
				s.drop(of)
				return nil, err
			}
			raw = append(make([]byte, 0, room), raw...)
			if room = min(2*room, limit+1); int64(cap(raw)) <= length {
				room = min(room, length+1)
			}
		}
		n, err := r.Read(raw[len(raw):cap(raw)])
		raw = raw[:len(raw)+n]
		switch {
		case int64(len(raw)) > limit:
			return nil, errTooLarge
		case errors.Is(err, io.EOF):
			return raw, nil
		case err != nil:
			return raw, err
		}
	}
}
