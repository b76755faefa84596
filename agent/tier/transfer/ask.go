package transfer

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"rota/agent/internal/record"
	"rota/api/backoff"
	"rota/api/httpx"
	"rota/api/pki"
)

const (
	// stallMax is how long nothing may come.
	stallMax = 15 * time.Second
	// BytesPerSecondMin is the slowest pull that a source bears.
	BytesPerSecondMin = 64 << 10
	// paceBytes are read at once when the rate is limited.
	paceBytes = 64 << 10
	// paceCredit is how much of a pause is made up for.
	paceCredit = 100 * time.Millisecond
)

// ask sends a request and has its answer read.
func (u *puller) ask(ctx context.Context, request string, cursor uint64, body []byte, read func(messages) error) error {
	inner, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stalled := time.AfterFunc(stallMax, func() {
		cancel(fmt.Errorf("nothing has come for %v", stallMax))
	})
	defer stalled.Stop()
	url := fmt.Sprintf("%s%s%s?migration=%d&cursor=%d", u.base, Path, request, u.Migration, cursor)
	req, err := http.NewRequestWithContext(inner, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("%w: address %q: %w", ErrUnreachable, u.Address, err)
	}
	resp, err := u.Client.Do(req)
	if err != nil {
		return torn(inner, err)
	}
	defer resp.Body.Close()
	if err := u.checkAnswer(resp); err != nil { // which may read it, in the same time
		return err
	}
	stalled.Stop()
	err = read(messages{bufio.NewReader(&answerReader{ctx: inner, r: resp.Body, pace: u.pace, stalled: stalled})})
	if errors.Is(err, errMalformed) {
		return fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	return err
}

// checkAnswer says whether it is an answer of the source, and one that has a body to read.
func (u *puller) checkAnswer(resp *http.Response) error {
	if name := pki.PeerName(resp.TLS); u.Peer != "" && resp.TLS != nil && name != u.Peer {
		return fmt.Errorf("%w: it is of %q, want %q", ErrPeer, name, u.Peer)
	}
	code := resp.Header.Get(codeHeader)
	if code == codeOK && resp.StatusCode == http.StatusOK {
		return nil
	}
	const whyMax = 256
	why, _ := io.ReadAll(io.LimitReader(resp.Body, whyMax)) // it only explains
	switch code {
	case codeUnknown:
		return fmt.Errorf("%w: migration %d", ErrUnknown, u.Migration)
	case codeNoCache:
		return fmt.Errorf("%w: the source; give its agent --kv-memory", ErrNoCache)
	case codeBusy:
		return fmt.Errorf("%w: the source is busy", errTorn)
	case codeMalformed:
		return fmt.Errorf("%w: it refuses a request: %q", ErrCorrupt, why)
	}
	return fmt.Errorf("%w at %s: what answers there with %q (%q) is no agent that moves KV caches, or lets no agents in; check the address and upgrade the agent",
		ErrUnreachable, u.Address, resp.Status, why)
}

// baseURL is the URL of a source for a client, which NewClient has made.
func baseURL(c *http.Client, address string) string {
	t, ok := c.Transport.(*http.Transport)
	return httpx.BaseURL(address, ok && t.TLSClientConfig != nil)
}

// list asks for a page.
func (u *puller) list(ctx context.Context, cursor uint64) (page []*item, next uint64, err error) {
	err = u.again(ctx, func() error {
		asked := u.Store.Now()
		return u.ask(ctx, requestList, cursor, nil, func(m messages) (err error) {
			page, next, err = u.readPage(m, cursor, asked)
			return err
		})
	})
	if err != nil {
		return nil, 0, err
	}
	return u.count(page), next, u.checkListed(len(page), next)
}

// readPage reads a page that was asked for at a time.
func (u *puller) readPage(m messages, cursor uint64, asked time.Time) (page []*item, next uint64, err error) {
	if cursor == 0 {
		if err := u.readTotals(m); err != nil {
			return nil, 0, err
		}
	}
	for memory := 0; ; {
		kind, d, err := m.next()
		if err != nil {
			return nil, 0, err
		}
		switch kind {
		case kindListed:
			it := &item{Info: readListed(d)}
			it.until = expiry(asked, it.Left)
			page = append(page, it)
			memory += len(it.Key) + 4*len(it.Sums)
			if len(page) > pageValues+stepKeys || memory > pageMemoryMax {
				return nil, 0, fmt.Errorf("%w: a page without end", errMalformed)
			}
			if !d.Failed && u.accept != nil && !u.accept.matches(it.Key) {
				return nil, 0, fmt.Errorf("%w: it lists key %.100q, which the selector does not choose", ErrCorrupt, it.Key)
			}
		case kindEnd:
			next = d.Uvarint()
			d.Failed = d.Failed || next != 0 && next <= cursor
		default:
			return nil, 0, unexpected(kind)
		}
		if err := done(kind, d); err != nil || kind == kindEnd {
			return page, next, err
		}
	}
}

// readTotals reads how much there is, and refuses it if it is more than the store can hold.
func (u *puller) readTotals(m messages) error {
	d, err := m.expect(kindTotals)
	if err != nil {
		return err
	}
	values, bytes := d.Uvarint(), d.Uvarint()
	if err := done(kindTotals, d); err != nil {
		return err
	}
	st := u.Store.Stat()
	if room := st.MemoryBytesMax + st.DiskBytesMax; bytes > room {
		return fmt.Errorf("%w: %d bytes are to move, and it holds %d; give its agent more --kv-memory or --kv-disk-size", ErrFull, bytes, room)
	}
	u.announced, u.announcedBytes = min(values, 1<<40), bytes
	return nil
}

// count adds a page to the totals, and leaves out what the target does not take.
func (u *puller) count(page []*item) (todo []*item) {
	for _, it := range page {
		u.listed++
		if it.Size > u.Store.ValueBytesMax() {
			u.progress.Skipped++
			continue
		}
		u.listedBytes += it.Size
		todo = append(todo, it)
	}
	u.progress.Values = max(u.announced, u.listed)
	u.progress.TotalBytes = max(u.announcedBytes, u.listedBytes)
	u.report(false)
	return todo
}

// checkListed refuses a listing without end.
func (u *puller) checkListed(n int, next uint64) error {
	if u.emptyPages++; n > 0 || next == 0 {
		u.emptyPages = 0
	}
	if u.emptyPages > emptyPagesMax || u.listed > 2*u.announced+surplusValues || u.listedBytes > 2*u.announcedBytes+surplusBytes {
		return fmt.Errorf("%w: its listing has %d values of %d bytes and does not end; it announced %d of %d bytes",
			ErrCorrupt, u.listed, u.listedBytes, u.announced, u.announcedBytes)
	}
	return nil
}

// wantsBody is a request for values or hashes.
func wantsBody(items []*item) (body []byte) {
	for _, it := range items {
		body = appendWant(body, it.want())
	}
	return appendEnd(body, 0)
}

// expect reads a message of one kind.
func (m messages) expect(want byte) (*record.Decoder, error) {
	kind, d, err := m.next()
	if err == nil && kind != want {
		err = unexpected(kind)
	}
	return d, err
}

// readEnd reads the end of an answer, so that its connection can be used again.
func readEnd(m messages) error {
	d, err := m.expect(kindEnd)
	if err != nil {
		return err
	}
	d.Uvarint()
	if err := done(kindEnd, d); err != nil {
		return err
	}
	switch _, err := m.r.ReadByte(); {
	case err == nil:
		return fmt.Errorf("%w: the answer goes on after its end", errMalformed)
	case !errors.Is(err, io.EOF):
		return err
	}
	return nil
}

func readHashAnswer(m messages, it *item) (exists bool, err error) {
	kind, d, err := m.next()
	switch {
	case err != nil:
		return false, err
	case kind == kindHash:
		it.Hash = readHash(d)
	case kind != kindGone:
		return false, unexpected(kind)
	}
	return kind == kindHash, done(kind, d)
}

func readDataAnswer(m messages) (v data, exists bool, err error) {
	kind, d, err := m.next()
	switch {
	case err != nil:
		return v, false, err
	case kind == kindData:
		v = readData(d)
	case kind != kindGone:
		return v, false, unexpected(kind)
	}
	return v, kind == kindData, done(kind, d)
}

// answerReader reads the body of an answer at the pace of the pull, and ends it when nothing
// comes.
type answerReader struct {
	ctx     context.Context
	r       io.Reader
	pace    *pace
	stalled *time.Timer
}

// Read implements io.Reader. Errors but io.EOF are errTorn.
func (a *answerReader) Read(p []byte) (int, error) {
	if err := a.pace.wait(a.ctx); err != nil {
		return 0, torn(a.ctx, err)
	}
	a.stalled.Reset(stallMax)
	n, err := a.r.Read(a.pace.part(p))
	a.stalled.Stop()
	a.pace.took(n)
	if err != nil && !errors.Is(err, io.EOF) {
		err = torn(a.ctx, err)
	}
	return n, err
}

// torn is the error of a connection, with what ended it if that was the context.
func torn(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	return fmt.Errorf("%w: %w", errTorn, err)
}

// pace limits a rate.
type pace struct {
	rate uint64 // bytes a second; 0: no limit
	next time.Time
}

func newPace(rate uint64) *pace {
	if rate > 0 {
		rate = max(rate, BytesPerSecondMin)
	}
	return &pace{rate: rate}
}

func (p *pace) part(b []byte) []byte {
	if p.rate > 0 {
		b = b[:min(len(b), paceBytes)]
	}
	return b
}

// wait returns when more may be read.
func (p *pace) wait(ctx context.Context) error {
	if p.rate == 0 {
		return nil
	}
	return backoff.Sleep(ctx, time.Until(p.next))
}

func (p *pace) took(n int) {
	if p.rate == 0 {
		return
	}
	if credit := time.Now().Add(-paceCredit); p.next.Before(credit) {
		p.next = credit
	}
	p.next = p.next.Add(time.Duration(float64(n) / float64(p.rate) * float64(time.Second)))
}
