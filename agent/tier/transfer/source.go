package transfer

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"rota/agent/tier"
	"rota/api/pki"
)

const (
	// Path is where a Source is mounted on the agent's port.
	Path = "/rota.transfer/"

	// requestsMax is how many requests a source serves at once. Each holds two values.
	requestsMax = 4
	// stepKeys is how many keys are looked at under the lock of the store.
	stepKeys = 128
	// stepsMax is how many such steps make a page at most, also if nothing is found.
	stepsMax = 512
	// sendBytes are written at once, within sendMax: the slowest target.
	sendBytes = 512 << 10
	sendMax   = time.Minute
	// askMax is how long a request may take to arrive.
	askMax = 15 * time.Second
	// hashFlush is the size from which a hash is sent as soon as it is known.
	hashFlush = 64 << 10
)

// Source serves values of a store to agents of other nodes.
type Source struct {
	store   *tier.Store
	allowed func(peer string, migration uint64) (Selector, bool)
	slots   chan struct{}
}

// NewSource returns the source of a store; nil for a node without a cache. allowed returns
// what the servers have told this node about a migration: which values the peer may pull. The
// peer is the name on the client's certificate, empty without TLS. allowed is called for each
// request, concurrently.
func NewSource(store *tier.Store, allowed func(peer string, migration uint64) (Selector, bool)) *Source {
	return &Source{store: store, allowed: allowed, slots: make(chan struct{}, requestsMax)}
}

// refusal is an answer that has no body but a sentence.
type refusal struct {
	status int
	code   string
	why    string
}

func (r *refusal) Error() string { return r.why }

func malformed(why error) error { return &refusal{http.StatusBadRequest, codeMalformed, why.Error()} }

// ServeHTTP implements http.Handler.
func (s *Source) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var refused *refusal
	switch err := s.serve(w, r); {
	case err == nil:
	case errors.As(err, &refused):
		w.Header().Set(codeHeader, refused.code)
		http.Error(w, refused.why, refused.status)
	default:
		panic(http.ErrAbortHandler) // the answer is cut off, which the target notices
	}
}

func (s *Source) serve(w http.ResponseWriter, r *http.Request) error {
	if r.Method != http.MethodPost || r.ProtoMajor != 1 {
		return malformed(errors.New("send a POST request over HTTP/1.1"))
	}
	m, err := s.admit(r)
	if err != nil {
		return err
	}
	select {
	case s.slots <- struct{}{}:
		defer func() { <-s.slots }()
	default:
		return &refusal{http.StatusServiceUnavailable, codeBusy, "other transfers are under way; try again"}
	}
	a := &answer{w: w, control: http.NewResponseController(w)}
	defer a.end()
	switch request := strings.TrimPrefix(r.URL.Path, Path); request {
	case requestList:
		return s.list(r, a, m)
	case requestHash, requestValues:
		wants, err := a.readWants(r.Body)
		if err != nil {
			return err
		}
		if request == requestHash {
			return s.hashes(a, m, wants)
		}
		return s.values(r.Context(), a, m, wants)
	default:
		return malformed(fmt.Errorf("there is no request %q", request))
	}
}

// admit returns what the peer may have.
func (s *Source) admit(r *http.Request) (*matcher, error) {
	migration, err := strconv.ParseUint(r.URL.Query().Get("migration"), 10, 64)
	if err != nil {
		return nil, malformed(errors.New("name the migration by its number"))
	}
	peer := pki.PeerName(r.TLS)
	unknown := &refusal{http.StatusNotFound, codeUnknown, fmt.Sprintf("this node was not told of migration %d to %q", migration, peer)}
	if r.TLS != nil && peer == "" { // without TLS an empty name is any node
		return nil, unknown
	}
	selector, ok := s.allowed(peer, migration)
	switch {
	case !ok || selector.Check() != nil:
		return nil, unknown
	case s.store == nil:
		return nil, &refusal{http.StatusNotFound, codeNoCache, "this node has no KV cache"}
	}
	return newMatcher(selector), nil
}

// answer is written in steps, each of which has its time.
type answer struct {
	w       http.ResponseWriter
	control *http.ResponseController
}

// end lets the connection be used again.
func (a *answer) end() {
	_ = a.control.SetReadDeadline(time.Time{})
	_ = a.control.SetWriteDeadline(time.Time{})
}

func (a *answer) write(b []byte) error {
	a.w.Header().Set(codeHeader, codeOK)
	for part := range slices.Chunk(b, sendBytes) {
		_ = a.control.SetWriteDeadline(time.Now().Add(sendMax)) // where there is a connection
		if _, err := a.w.Write(part); err != nil {
			return err
		}
	}
	return nil
}

// readWants reads the body of a request.
func (a *answer) readWants(body io.Reader) (wants []want, err error) {
	_ = a.control.SetReadDeadline(time.Now().Add(askMax))
	m := messages{bufio.NewReader(io.LimitReader(body, requestBytesMax))}
	for {
		kind, d, err := m.next()
		if err != nil {
			return nil, malformed(err)
		}
		switch kind {
		case kindWant:
			w := readWant(d)
			if err := done(kind, d); err != nil {
				return nil, malformed(err)
			}
			if wants = append(wants, w); len(wants) > pageValues+stepKeys {
				return nil, malformed(errors.New("too many values in one request"))
			}
		case kindEnd:
			_, err := io.Copy(io.Discard, m.r) // what the connection is used again after
			_ = a.control.SetReadDeadline(time.Time{})
			return wants, err
		default:
			return nil, malformed(unexpected(kind))
		}
	}
}

// list answers with a page of what is chosen.
func (s *Source) list(r *http.Request, a *answer, m *matcher) error {
	cursor, err := strconv.ParseUint(r.URL.Query().Get("cursor"), 10, 64)
	if err != nil {
		return malformed(errors.New("say where the listing goes on"))
	}
	var body []byte
	if cursor == 0 {
		values, bytes, err := s.total(r.Context(), m)
		if err != nil {
			return err
		}
		body = appendTotals(body, values, bytes)
	}
	n := 0
	for steps := 0; ; steps++ {
		var found []tier.Info
		found, cursor = s.step(m, cursor)
		for _, i := range found {
			body = appendListed(body, i)
		}
		n += len(found)
		if cursor == 0 || n >= pageValues || len(body) >= pageBytes || steps == stepsMax {
			return a.write(appendEnd(body, cursor))
		}
	}
}

func (s *Source) total(ctx context.Context, m *matcher) (values, bytes uint64, err error) {
	for cursor := uint64(0); ; {
		var found []tier.Info
		found, cursor = s.step(m, cursor)
		for _, i := range found {
			values, bytes = values+1, bytes+i.Size
		}
		if cursor == 0 || ctx.Err() != nil {
			return values, bytes, ctx.Err()
		}
	}
}

// step looks at some keys and returns those that are chosen, and the next cursor. Below
// namedFrom a cursor is one of the store. From there on it counts the keys of the selector.
func (s *Source) step(m *matcher, cursor uint64) (found []tier.Info, next uint64) {
	if cursor >= namedFrom {
		return s.stepNamed(m, cursor-namedFrom)
	}
	var keys []string
	switch {
	case len(m.Prefixes) > 0:
		keys, next = s.store.Scan(cursor, stepKeys)
		keys = slices.DeleteFunc(keys, func(key string) bool { return !m.matchesUnnamed(key) })
	case m.Tag != "":
		keys, next = s.store.Tagged(m.Tag, cursor, stepKeys)
	}
	if next == 0 && len(m.Keys) > 0 {
		next = namedFrom
	}
	return s.describe(keys), next
}

// stepNamed leaves out keys that are chosen otherwise too.
func (s *Source) stepNamed(m *matcher, at uint64) (found []tier.Info, next uint64) {
	keys := m.Keys[min(at, uint64(len(m.Keys))):]
	if len(keys) > stepKeys {
		keys, next = keys[:stepKeys], namedFrom+at+stepKeys
	}
	keys = slices.DeleteFunc(slices.Clone(keys), m.matchesUnnamed)
	return s.describe(keys), next
}

func (s *Source) describe(keys []string) []tier.Info {
	return slices.DeleteFunc(s.store.Describe(keys), func(i tier.Info) bool { return !fits(i) })
}

// hashes answers with the hash of each value. The target hashes, too, while the source goes on.
func (s *Source) hashes(a *answer, m *matcher, wants []want) error {
	for _, w := range wants {
		answer := appendGone(nil)
		if m.matches(w.key) {
			if h, exists := s.store.HashOf(w.key); exists {
				answer = appendHash(nil, h)
			}
		}
		if err := a.write(answer); err != nil {
			return err
		}
		if n, _ := s.store.Size(w.key); n >= hashFlush {
			_ = a.control.Flush()
		}
	}
	return a.write(appendEnd(nil, 0))
}

// loaded is a value to send, to be released; nil: it is gone.
type loaded struct {
	value *tier.Value
	data  data
	err   error
}

// values answers with each value. The next one is read from disk while one is sent.
func (s *Source) values(ctx context.Context, a *answer, m *matcher, wants []want) error {
	ctx, cancel := context.WithCancel(ctx)
	values := make(chan loaded)
	go func() {
		defer close(values)
		for _, w := range wants {
			l := s.load(m, w)
			select {
			case values <- l:
			case <-ctx.Done():
				l.release()
				return
			}
		}
	}()
	defer func() {
		cancel()
		for l := range values {
			l.release()
		}
	}()
	for l := range values {
		err := a.send(l)
		l.release()
		if err != nil {
			return err
		}
	}
	return a.write(appendEnd(nil, 0))
}

func (l loaded) release() {
	if l.value != nil {
		l.value.Release()
	}
}

func (s *Source) load(m *matcher, w want) (l loaded) {
	if !m.matches(w.key) {
		return l
	}
	if w.check {
		if v := s.store.Get(w.key); v != nil { // drops a copy that is damaged
			v.Release()
		}
	}
	l.value, l.data.info, l.err = s.store.Peek(w.key)
	if l.value != nil && w.chunk > 0 && w.size == l.data.info.Size && slices.Equal(w.sums, l.data.info.Sums) {
		l.data.chunk = w.chunk
	}
	return l
}

func (a *answer) send(l loaded) error {
	switch {
	case l.err != nil:
		return l.err
	case l.value == nil:
		return a.write(appendGone(nil))
	}
	if err := a.write(appendData(nil, l.data)); err != nil {
		return err
	}
	return a.write(l.value.BytesFrom(int(l.data.chunk)))
}
