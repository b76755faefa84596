package intake

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"io"
	"net/http"
	"time"

	"connectrpc.com/connect"

	"rota/api/httpx"
)

const (
	// arrivalMax is how long one message may take to arrive, so that slow senders
	// do not hold the budget.
	arrivalMax = 30 * time.Second
	// discardMax is how much of a refused request is read, for its sender to see the
	// answer instead of a broken connection.
	discardMax = 32 << 20
	// envelopeBytes is what precedes each message of a stream, and of gRPC.
	envelopeBytes = 5
	// envelopeZipped is the flag of a compressed message.
	envelopeZipped = 1
	// A message is held in a buffer that grew by doubling, and copied into another by
	// Connect: in multiples of its size.
	bufferCopies, connectCopies = 2, 3
	// bufferFirst is the first size of a buffer, bufferKnown the same if the message is
	// announced to be long.
	bufferFirst, bufferKnown = 511, 64 << 10
	// unzipBytes is what expanding takes beside its buffers.
	unzipBytes = 64 << 10
)

// body is the body of a request. It reads and checks a whole message before it
// yields the first byte of it.
type body struct {
	from    io.ReadCloser
	control *http.ResponseController
	format  format
	// length of the body if it is known, else -1.
	length  int64
	request *schema
	share   *share
	max     int
	// patience is how long a message may take to arrive.
	patience time.Duration

	// ready is what has been checked and not been read, err what comes after it.
	ready []byte
	err   error
}

func newBody(w http.ResponseWriter, r *http.Request, m *method, s *share, max int) *body {
	if m.streams {
		max = min(max, streamBytesMax)
	}
	return &body{
		from: r.Body, control: http.NewResponseController(w), format: formatOf(r.Header), length: r.ContentLength,
		request: m.request, share: s, max: max, patience: arrivalMax,
	}
}

// Read yields the bytes of checked messages.
func (b *body) Read(p []byte) (int, error) {
	if len(b.ready) == 0 && b.err == nil {
		b.next()
	}
	if len(b.ready) == 0 {
		return 0, b.err
	}
	n := copy(p, b.ready)
	b.ready = b.ready[n:]
	return n, nil
}

// Close closes the request's body.
func (b *body) Close() error { return b.from.Close() }

// next reads and checks one message.
func (b *body) next() {
	if b.format.enveloped {
		b.ready, b.err = b.envelope()
	} else if b.ready, b.err = b.message(b.from, b.format.gzip, b.max, b.length); b.err == nil {
		b.err = io.EOF
	}
	if b.err != nil && !errors.Is(b.err, io.EOF) {
		b.ready = nil
		b.refuse()
	}
}

// refuse ends a request that is refused, or has broken off.
func (b *body) refuse() {
	var refusal *connect.Error
	if !errors.As(b.err, &refusal) {
		b.share.blameless = true
	}
	b.share.end()
	if !b.share.turnedAway { // reading it would be work, too
		b.discard()
	}
}

// envelope reads one message of a stream, and yields it uncompressed. Of one that
// is cut off it yields what there is: Connect knows what to say.
func (b *body) envelope() ([]byte, error) {
	head := make([]byte, envelopeBytes)
	if n, err := io.ReadFull(b.from, head); err != nil {
		return head[:n], cut(err)
	}
	size := int64(binary.BigEndian.Uint32(head[1:]))
	if size > int64(b.max) {
		return nil, tooLarge(b.max)
	}
	zipped := head[0]&envelopeZipped != 0
	if zipped && !b.format.gzip {
		return nil, malformed("it is compressed, and its header does not say how")
	}
	rest := &io.LimitedReader{R: b.from, N: size}
	content, err := b.message(rest, zipped, int(size), size)
	if rest.N > 0 && cut(err) == io.EOF {
		return append(head, content...), io.EOF
	}
	head[0] &^= envelopeZipped
	binary.BigEndian.PutUint32(head[1:], uint32(len(content)))
	return append(head, content...), err
}

// cut makes the end of a body in the middle of a message an end.
func cut(err error) error {
	if err == nil || errors.Is(err, io.ErrUnexpectedEOF) {
		return io.EOF
	}
	return err
}

// message reads one message to the end of from, expands it and checks what
// decoding it would take. The length is what its sender announces, or -1.
func (b *body) message(from io.Reader, zipped bool, max int, length int64) ([]byte, error) {
	stop := arrive(b.control, b.patience)
	content, err := b.readAll(from, max, length)
	if late := stop(); late {
		return nil, tooSlow(b.patience)
	}
	if err == nil && zipped && len(content) > 0 {
		content, err = b.unzip(content)
	}
	if err == nil {
		err = b.check(content)
	}
	return content, err
}

// readAll reads to the end, and takes from the budget what its buffer needs.
func (b *body) readAll(from io.Reader, max int, length int64) ([]byte, error) {
	buf := []byte(nil)
	for size := min(int(clamp(length, bufferFirst, bufferKnown))+1, max+1); ; size = min(2*size, max+1) {
		if err := b.share.take(bufferCopies * int64(size-cap(buf))); err != nil {
			return nil, err
		}
		buf = append(make([]byte, 0, size), buf...)
		for len(buf) < size {
			n, err := from.Read(buf[len(buf):size])
			buf = buf[:len(buf)+n]
			if errors.Is(err, io.EOF) && len(buf) <= max {
				return buf, nil
			}
			if err != nil && !errors.Is(err, io.EOF) {
				return buf, err
			}
		}
		if len(buf) > max {
			return nil, tooLarge(max)
		}
	}
}

func clamp(n, low, high int64) int64 { return min(max(n, low), high) }

// unzip expands a message, and gives back what its compressed form took.
func (b *body) unzip(content []byte) ([]byte, error) {
	before := b.share.held
	if err := b.share.take(unzipBytes); err != nil {
		return nil, err
	}
	r, err := gzip.NewReader(bytes.NewReader(content))
	if err != nil {
		return nil, malformed(err.Error())
	}
	plain, err := b.readAll(r, b.max, int64(len(content)))
	var refusal *connect.Error
	if err != nil && !errors.As(err, &refusal) {
		return nil, malformed(err.Error())
	}
	b.share.give(before)
	return plain, err
}

// check takes from the budget what decoding a message will allocate.
func (b *body) check(content []byte) error {
	if err := b.share.take(connectCopies * int64(len(content))); err != nil {
		return err
	}
	m := meter{limit: b.share.max - b.share.held}
	walk := m.binary
	if b.format.json {
		walk = m.json
	}
	if err := walk(b.request, content); errors.Is(err, errMalformed) {
		return malformed(err.Error())
	}
	return b.share.take(m.spent) // refuses what is beyond the limit
}

// discard reads on, within bounds: who sends a refused request is to see the
// answer, and not a connection that breaks.
func (b *body) discard() {
	defer arrive(b.control, b.patience)()
	_, _ = io.CopyN(io.Discard, b.from, discardMax) // whatever comes
}

// arrive begins to count the time in which a message arrives. stop reports whether it was
// late.
func arrive(control *http.ResponseController, patience time.Duration) (stop func() (late bool)) {
	// Without it, the reader waits as long as it would have.
	return httpx.Late(patience, func() { _ = control.SetReadDeadline(time.Now()) })
}
