package transfer

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"rota/agent/internal/record"
	"rota/agent/tier"
	"rota/api/httpx"
	"rota/api/pki"
)

// answers is a peer that answers each request with bytes of its own.
func answers(list, hash, values []byte) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(codeHeader, codeOK)
		switch strings.TrimPrefix(r.URL.Path, Path) {
		case requestList:
			_, _ = w.Write(list)
		case requestHash:
			_, _ = w.Write(hash)
		default:
			_, _ = w.Write(values)
		}
	}
}

func listed(key string, size uint64) tier.Info {
	return tier.Info{Key: key, Size: size, Sums: make([]uint32, tier.Chunks(size)), Left: -1}
}

// page is a whole listing.
func page(infos ...tier.Info) []byte {
	b := appendTotals(nil, uint64(len(infos)), 1000)
	for _, i := range infos {
		b = appendListed(b, i)
	}
	return appendEnd(b, 0)
}

func TestHostileSources(t *testing.T) {
	zero := tier.Info{Size: 10, Sums: []uint32{0}, Left: -1}
	longKey := record.AppendString([]byte{kindListed}, strings.Repeat("p", tier.KeyBytesMax+1))
	for name, c := range map[string]struct {
		list, hash, values []byte
		want               error
	}{
		"no message":                {list: []byte("hello, world"), want: ErrCorrupt},
		"a message of no bytes":     {list: []byte{0, 0, 0, 0}, want: ErrCorrupt},
		"a message without end":     {list: []byte{255, 255, 255, 255}, want: ErrCorrupt},
		"no totals":                 {list: appendEnd(nil, 0), want: ErrCorrupt},
		"an answer that ends":       {list: appendTotals(nil, 1, 1), want: ErrUnreachable},
		"a value in a listing":      {list: appendGone(appendTotals(nil, 1, 1)), want: ErrCorrupt},
		"a cursor that stays":       {list: appendEnd(appendTotals(nil, 1, 1), 0)[:0], want: ErrUnreachable},
		"a key that is not chosen":  {list: page(listed("other", 10)), want: ErrCorrupt},
		"a key that is too long":    {list: appendMessage(appendTotals(nil, 1, 1), longKey), want: ErrCorrupt},
		"too few checksums":         {list: page(tier.Info{Key: "p", Size: 10, Left: -1}), want: ErrCorrupt},
		"more bytes than there are": {list: appendTotals(nil, 1, 1<<62), want: ErrFull},
		"another value than asked":  {list: page(listed("p", 10)), values: appendHash(nil, tier.Hash{}), want: ErrCorrupt},
		"bytes that do not match":   {list: page(listed("p", 10)), values: append(appendData(nil, data{info: zero}), "0123456789"...), want: ErrCorrupt},
		"a value that is too large": {list: page(listed("p", 10)), values: appendData(nil, data{info: listed("", 1<<40)})[:0], want: ErrUnreachable},
		"a larger value than told":  {list: page(listed("p", 10)), values: appendData(nil, data{info: listed("", 20<<20)}), want: ErrCorrupt},
		"the middle of a value":     {list: page(listed("p", 1<<20)), values: appendData(nil, data{1, listed("", 1<<20)}), want: ErrCorrupt},
		"half a value":              {list: page(listed("p", 10)), values: append(appendData(nil, data{info: zero}), 1), want: ErrUnreachable},
		"more after the end":        {list: page(listed("p", 10)), values: append(appendEnd(appendGone(nil), 0), 1), want: ErrCorrupt},
		"no hash":                   {list: page(twin()), hash: appendEnd(nil, 0), want: ErrCorrupt},
		"a short hash":              {list: page(twin()), hash: appendMessage(nil, []byte{kindHash, 1}), want: ErrCorrupt},
	} {
		t.Run(name, func(t *testing.T) {
			target := openStore(t, tier.Options{MemoryBytes: 4 << 20})
			set(t, target, "twin", []byte("a value"), time.Time{})
			address, _ := served(t, answers(c.list, c.hash, c.values))
			p := newPull(t, address, target)
			p.Selector, p.patience = Selector{Prefixes: []string{"p"}}, 30*time.Millisecond
			if got, err := run(t, p); !errors.Is(err, c.want) {
				t.Errorf("%+v, %v; want %v", got, err, c.want)
			}
			if st := target.Stat(); st.Keys != 1 || st.MemoryBytes != 4096 {
				t.Errorf("the target is changed: %+v", st)
			}
		})
	}
}

// twin is a value that the target has, by its checksum.
func twin() tier.Info {
	store, err := tier.Open(tier.Options{MemoryBytes: 1 << 20})
	if err != nil {
		panic(err)
	}
	defer store.Close()
	v, err := store.NewValue(7)
	if err != nil {
		panic(err)
	}
	sum, _ := v.FillChunk(strings.NewReader("a value"), 0)
	v.Release()
	return tier.Info{Key: "p", Size: 7, Sums: []uint32{sum}, Left: -1}
}

// A hash that is claimed makes no key name another's value, and equal checksums do not.
func TestEqualChecksumsAreNotEnough(t *testing.T) {
	target := openStore(t, tier.Options{})
	set(t, target, "secret", []byte("a value"), time.Time{})
	address, _ := served(t, answers(page(twin()), appendEnd(appendHash(nil, tier.Hash{1}), 0), appendEnd(appendGone(nil), 0)))
	got, err := run(t, newPull(t, address, target))
	if err != nil || got.Skipped != 1 || got.PresentBytes != 0 || target.Len() != 1 {
		t.Errorf("%+v, %v, %d keys", got, err, target.Len())
	}
}

func TestListingsWithoutEnd(t *testing.T) {
	for name, each := range map[string][]byte{
		"of values": appendListed(nil, tier.Info{Key: "p", Size: 1 << 40, Sums: nil, Left: -1}),
		"of tiny":   appendListed(nil, listed("p", 1)),
	} {
		var one []byte
		for range pageValues {
			one = append(one, each...)
		}
		next := uint64(0)
		address, _ := served(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, requestValues) {
				answers(nil, nil, appendEnd(bytes.Repeat(appendGone(nil), 1), 0))(w, r)
				return
			}
			w.Header().Set(codeHeader, codeOK)
			if next++; next == 1 {
				_, _ = w.Write(appendTotals(nil, 1, 1))
			}
			_, _ = w.Write(appendEnd(append([]byte{}, one...), next))
		}))
		p := newPull(t, address, openStore(t, tier.Options{}))
		set(t, p.Store, "p", []byte("mine"), time.Time{}) // so that nothing is to be moved
		if got, err := run(t, p); !errors.Is(err, ErrCorrupt) || next > 100 {
			t.Errorf("%s: %+v, %v after %d pages", name, got, err, next)
		}
	}
}

func TestRefusals(t *testing.T) {
	store := openStore(t, tier.Options{})
	p := newPull(t, "", openStore(t, tier.Options{}))
	for name, c := range map[string]struct {
		source http.Handler
		want   error
	}{
		"another migration":   {NewSource(store, func(string, uint64) (Selector, bool) { return Selector{Tag: "a%b"}, false }), ErrUnknown},
		"nothing is selected": {NewSource(store, allow(Selector{})), ErrUnknown},
		"no cache":            {NewSource(nil, allow(Selector{Tag: "a%b"})), ErrNoCache},
		"an older agent":      {http.NotFoundHandler(), ErrUnreachable},
		"always busy": {http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set(codeHeader, codeBusy)
			w.WriteHeader(http.StatusServiceUnavailable)
		}), ErrUnreachable},
	} {
		p.Address, _ = served(t, c.source)
		p.patience = 30 * time.Millisecond
		if _, err := run(t, p); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	p.Store = nil
	if _, err := run(t, p); !errors.Is(err, ErrNoCache) {
		t.Errorf("no target: %v", err)
	}
	p.Store, p.Selector = store, Selector{Tag: "no tag"}
	if _, err := run(t, p); !errors.Is(err, ErrSelector) {
		t.Errorf("a bad selector: %v", err)
	}
}

func TestSelectorsAreChecked(t *testing.T) {
	for _, s := range []Selector{
		{}, {Tag: "x"}, {Tag: "%x"}, {Tag: "a%b@c"}, {Keys: []string{""}}, {Prefixes: []string{"a", ""}},
		{Prefixes: []string{strings.Repeat("a", SelectorBytesMax+1)}}, {Tag: "a%" + strings.Repeat("a", SelectorBytesMax)},
	} {
		if err := s.Check(); !errors.Is(err, ErrSelector) {
			t.Errorf("%.20v: %v", s, err)
		}
	}
	for _, s := range []Selector{{Tag: "a%"}, {Keys: []string{"a"}}, {Prefixes: []string{strings.Repeat("a", SelectorBytesMax)}}} {
		if err := s.Check(); err != nil {
			t.Error(err)
		}
	}
}

// The source serves one node, by the name on its certificate; the target takes values from
// one node.
func TestOnlyTheNamedNodesOverTLS(t *testing.T) {
	dir := t.TempDir()
	must(t, pki.NewCA(dir))
	for _, name := range []string{"source", "target", "other"} {
		must(t, pki.Issue(dir, pki.RoleAgent, name))
	}
	store := openStore(t, tier.Options{})
	set(t, store, "p", text(1, 1000), time.Time{})
	source := NewSource(store, func(peer string, _ uint64) (Selector, bool) {
		return Selector{Prefixes: []string{"p"}}, peer == "target"
	})
	conf, err := pki.ServerConfig(pki.FilesIn(dir, "source"), pki.RoleAgent)
	must(t, err)
	conf.NextProtos = []string{"h2", "http/1.1"}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	server := httpx.NewServer(source)
	go func() { _ = server.Serve(tls.NewListener(l, conf)) }()
	defer server.Close()
	pull := func(as, from string) error {
		conf, err := pki.ClientConfig(pki.FilesIn(dir, as), pki.RoleAgent)
		must(t, err)
		p := newPull(t, l.Addr().String(), openStore(t, tier.Options{}))
		p.Client, p.Peer = NewClient(conf), from
		defer p.Client.CloseIdleConnections()
		_, err = run(t, p)
		return err
	}
	if err := pull("target", "source"); err != nil {
		t.Error(err)
	}
	if err := pull("other", "source"); !errors.Is(err, ErrUnknown) {
		t.Errorf("another target: %v", err)
	}
	if err := pull("target", "other"); !errors.Is(err, ErrPeer) {
		t.Errorf("another source: %v", err)
	}
}

func TestTheRateIsLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const rate, n = 1 << 20, 10 << 20
		stalled := time.NewTimer(time.Hour)
		defer stalled.Stop()
		began := time.Now()
		r := &answerReader{ctx: t.Context(), r: io.LimitReader(zeros{}, n), pace: newPace(rate), stalled: stalled}
		got, err := io.Copy(io.Discard, r)
		if took := time.Since(began); err != nil || got != n || took < 9500*time.Millisecond || took > 10100*time.Millisecond {
			t.Errorf("%d bytes in %v, %v", got, took, err)
		}
	})
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// FuzzAnswers gives the target any answer to each of its requests.
func FuzzAnswers(f *testing.F) {
	good := append(appendData(nil, data{info: tier.Info{Size: 3, Sums: []uint32{0x364b3fb7}, Left: -1}}), "abc"...)
	f.Add(page(listed("p", 3)), []byte{}, appendEnd(good, 0))
	f.Add(page(twin()), appendEnd(appendHash(nil, tier.Hash{1}), 0), appendEnd(appendGone(nil), 0))
	f.Fuzz(func(t *testing.T, list, hash, values []byte) {
		store, err := tier.Open(tier.Options{MemoryBytes: 1 << 20})
		must(t, err)
		defer store.Close()
		set(t, store, "twin", []byte("a value"), time.Time{})
		p := Pull{Address: "source", Store: store, Selector: Selector{Prefixes: []string{"p"}}, patience: time.Nanosecond,
			Client: &http.Client{Transport: inProcess{answers(list, hash, values)}}}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		_, err = p.Run(ctx)
		if ctx.Err() != nil {
			t.Error("it does not end")
		}
		keys := contents(store)
		for key := range keys {
			if key != "twin" && !strings.HasPrefix(key, "p") {
				t.Errorf("key %q", key)
			}
		}
		store.Clear()
		if st := store.Stat(); st.MemoryBytes != 0 {
			t.Errorf("%d bytes of memory are lost after %v", st.MemoryBytes, err)
		}
	})
}

// inProcess asks a handler without a network.
type inProcess struct{ h http.Handler }

func (p inProcess) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	p.h.ServeHTTP(w, r)
	return w.Result(), nil
}

// FuzzRequests gives the source any request. It never answers with what is not chosen.
func FuzzRequests(f *testing.F) {
	wants := appendWant(nil, want{key: "p"})
	wants = appendWant(wants, want{key: "p", check: true, chunk: 1, size: 600_000, sums: []uint32{1, 2}})
	wants = appendWant(wants, want{key: "secret"})
	f.Add(requestValues, "migration=7", appendEnd(wants, 0))
	f.Add(requestHash, "migration=7", appendEnd(wants, 0))
	f.Add(requestList, "migration=7&cursor=0", []byte{})
	f.Add(requestList, "migration=7&cursor=18446744073709551615", []byte{})
	store := openStore(f, tier.Options{MemoryBytes: 4 << 20})
	set(f, store, "p", text(1, 600_000), time.Time{})
	set(f, store, "secret", []byte("a secret value"), time.Time{})
	secret, _ := store.HashOf("secret")
	source := NewSource(store, allow(Selector{Prefixes: []string{"p"}, Keys: []string{"k"}}))
	f.Fuzz(func(t *testing.T, request, query string, body []byte) {
		r := httptest.NewRequest(http.MethodPost, Path, bytes.NewReader(body))
		r.URL.Path, r.URL.RawQuery = Path+request, query
		w := httptest.NewRecorder()
		source.ServeHTTP(w, r)
		got := w.Body.Bytes()
		if bytes.Contains(got, []byte("a secret value")) || bytes.Contains(got, secret[:]) {
			t.Error("it answers with what is not chosen")
		}
		if code := w.Header().Get(codeHeader); code != codeOK && w.Code < 400 || code == "" {
			t.Errorf("status %d, code %q", w.Code, code)
		}
		if st := store.Stat(); st.MemoryBytes != uint64(602_112+4096) {
			t.Errorf("%d bytes of memory are in use", st.MemoryBytes)
		}
	})
}

func TestMessagesAreReadAsWritten(t *testing.T) {
	info := tier.Info{Key: "a@b%c", Size: tier.ChunkBytes + 1, Sums: []uint32{1, 1 << 31}, Hashed: true, Hash: tier.Hash{9}, Left: 5 * time.Millisecond}
	b := appendListed(nil, info)
	if n := binary.LittleEndian.Uint32(b); int(n) != len(b)-4 {
		t.Fatalf("length %d of %d", n, len(b)-4)
	}
	d := &record.Decoder{Rest: b[5:]}
	got := readListed(d)
	if d.Failed || got.Key != info.Key || got.Hash != info.Hash || got.Left != info.Left || got.Size != info.Size || got.Sums[1] != 1<<31 {
		t.Errorf("%+v", got)
	}
	asked := want{key: "k", check: true, chunk: 1, size: info.Size, sums: info.Sums}
	d = &record.Decoder{Rest: appendWant(nil, asked)[5:]}
	if w := readWant(d); d.Failed || w.key != "k" || !w.check || w.chunk != 1 || w.sums[1] != 1<<31 {
		t.Errorf("%+v", w)
	}
	if !errors.Is(done(kindWant, &record.Decoder{Rest: []byte{1}}), errMalformed) {
		t.Error("bytes are left over")
	}
}

// A source that refuses, and does not end the text of its refusal, is waited for as long as any other that
// stalls.
func TestARefusalWithoutEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := &http.Client{Transport: silent{}}
		u := &puller{Pull: Pull{Client: client, Address: "source"}, pace: newPace(0), base: baseURL(client, "source")}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		began := time.Now()
		err := u.ask(ctx, requestList, 0, nil, func(messages) error { return nil })
		if took := time.Since(began); !errors.Is(err, errTorn) || took != stallMax {
			t.Errorf("%v after %v", err, took)
		}
	})
}

// silent answers that it is busy, and why until the request ends.
type silent struct{}

func (silent) RoundTrip(r *http.Request) (*http.Response, error) {
	text, w := io.Pipe()
	context.AfterFunc(r.Context(), func() { w.CloseWithError(r.Context().Err()) })
	return &http.Response{StatusCode: http.StatusServiceUnavailable, Header: http.Header{codeHeader: {codeBusy}}, Body: text}, nil
}
