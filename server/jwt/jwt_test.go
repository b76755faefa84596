package jwt

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	josejwt "github.com/go-jose/go-jose/v4/jwt"
	"google.golang.org/protobuf/types/known/durationpb"

	rotav1 "rota/api/gen/rota/v1"
)

// issuer is a server of keys that rotate, with an OpenID configuration.
type issuer struct {
	*httptest.Server
	mu      sync.Mutex
	keys    jose.JSONWebKeySet
	down    bool
	fetches int
}

func newIssuer(t *testing.T) *issuer {
	i := &issuer{}
	i.Server = httptest.NewServer(i.handler())
	t.Cleanup(i.Close)
	return i
}

func (i *issuer) handler() http.Handler {
	mux := http.NewServeMux()
	answer := func(w http.ResponseWriter, what func() any) {
		i.mu.Lock()
		defer i.mu.Unlock()
		if i.down {
			http.Error(w, "down", http.StatusServiceUnavailable)
			return
		}
		_ = json.NewEncoder(w).Encode(what())
	}
	mux.HandleFunc("/.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, func() any { return map[string]string{"issuer": i.URL, "jwks_uri": i.URL + "/keys"} })
	})
	mux.HandleFunc("/keys", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, func() any { i.fetches++; return i.keys })
	})
	return mux
}

// rotate replaces the keys.
func (i *issuer) rotate(keys ...key) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.keys.Keys = nil
	for _, k := range keys {
		i.keys.Keys = append(i.keys.Keys, jose.JSONWebKey{Key: k.signer.Public(), KeyID: k.id, Use: "sig"})
	}
}

func (i *issuer) set(down bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.down = down
}

type key struct {
	id     string
	alg    jose.SignatureAlgorithm
	signer crypto.Signer
}

func newKey(t *testing.T, id string, alg jose.SignatureAlgorithm) key {
	t.Helper()
	var signer crypto.Signer
	var err error
	switch alg {
	case jose.RS256:
		signer, err = rsa.GenerateKey(rand.Reader, 2048)
	case jose.ES256:
		signer, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	default:
		_, signer, err = ed25519.GenerateKey(rand.Reader)
	}
	if err != nil {
		t.Fatal(err)
	}
	return key{id, alg, signer}
}

func (k key) sign(t *testing.T, claims ...any) string {
	t.Helper()
	options := (&jose.SignerOptions{}).WithHeader("kid", k.id)
	s, err := jose.NewSigner(jose.SigningKey{Algorithm: k.alg, Key: k.signer}, options)
	if err != nil {
		t.Fatal(err)
	}
	b := josejwt.Signed(s)
	for _, c := range claims {
		b = b.Claims(c)
	}
	raw, err := b.Serialize()
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// TestVerify: each thing that can be wrong with a token is.
func TestVerify(t *testing.T) {
	i := newIssuer(t)
	rs, es, ed, stranger := newKey(t, "rs", jose.RS256), newKey(t, "es", jose.ES256), newKey(t, "ed", jose.EdDSA), newKey(t, "rs", jose.RS256)
	i.rotate(rs, es, ed)
	now := time.Unix(1_800_000_000, 0)
	v := New(i.Client(), func() time.Time { return now })
	method := &rotav1.AuthMethod{Name: "k8s", Issuer: i.URL, Audiences: []string{"rota"}, ClockSkew: durationpb.New(10 * time.Second)}
	only := &rotav1.AuthMethod{Name: "only", Issuer: i.URL, Audiences: []string{"rota"}, Algorithms: []string{"ES256"}}
	claims := func(change ...func(*josejwt.Claims)) josejwt.Claims {
		c := josejwt.Claims{
			Issuer: i.URL, Subject: "system:serviceaccount:search:bot", Audience: josejwt.Audience{"other", "rota"},
			Expiry: josejwt.NewNumericDate(now.Add(time.Minute)), IssuedAt: josejwt.NewNumericDate(now), NotBefore: josejwt.NewNumericDate(now),
		}
		for _, f := range change {
			f(&c)
		}
		return c
	}
	at := func(d time.Duration) *josejwt.NumericDate { return josejwt.NewNumericDate(now.Add(d)) }
	hmac, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.HS256, Key: rs.signer.Public().(*rsa.PublicKey).N.Bytes()}, nil)
	if err != nil {
		t.Fatal(err)
	}
	confused, err := josejwt.Signed(hmac).Claims(claims()).Serialize()
	if err != nil {
		t.Fatal(err)
	}
	unsigned := "eyJhbGciOiJub25lIn0." + strings.Split(rs.sign(t, claims()), ".")[1] + "."
	for name, test := range map[string]struct {
		raw    string
		method *rotav1.AuthMethod
		want   error
	}{
		"RS256":                  {rs.sign(t, claims()), method, nil},
		"ES256":                  {es.sign(t, claims()), method, nil},
		"EdDSA":                  {ed.sign(t, claims()), method, nil},
		"expired within skew":    {rs.sign(t, claims(func(c *josejwt.Claims) { c.Expiry = at(-9 * time.Second) })), method, nil},
		"expired":                {rs.sign(t, claims(func(c *josejwt.Claims) { c.Expiry = at(-11 * time.Second) })), method, ErrDates},
		"no expiry":              {rs.sign(t, claims(func(c *josejwt.Claims) { c.Expiry = nil })), method, ErrDates},
		"not yet":                {rs.sign(t, claims(func(c *josejwt.Claims) { c.NotBefore = at(11 * time.Second) })), method, ErrDates},
		"issued in the future":   {rs.sign(t, claims(func(c *josejwt.Claims) { c.IssuedAt = at(11 * time.Second) })), method, ErrDates},
		"for ever":               {rs.sign(t, claims(func(c *josejwt.Claims) { c.Expiry = at(200 * 24 * time.Hour) })), method, ErrDates},
		"other audience":         {rs.sign(t, claims(func(c *josejwt.Claims) { c.Audience = josejwt.Audience{"other"} })), method, ErrIssuer},
		"other issuer":           {rs.sign(t, claims(func(c *josejwt.Claims) { c.Issuer = "https://other.example" })), method, ErrIssuer},
		"no issuer":              {rs.sign(t, claims(func(c *josejwt.Claims) { c.Issuer = "" })), method, ErrIssuer},
		"nobody":                 {rs.sign(t, claims(func(c *josejwt.Claims) { c.Subject = "" })), method, ErrMalformed},
		"a key of someone else":  {stranger.sign(t, claims()), method, ErrSignature},
		"an algorithm too many":  {rs.sign(t, claims()), only, ErrMalformed},
		"the allowed algorithm":  {es.sign(t, claims()), only, nil},
		"unsigned":               {unsigned, method, ErrMalformed},
		"signed with public key": {confused, method, ErrMalformed},
		"no token":               {"a.b.c", method, ErrMalformed},
		"empty":                  {"", method, ErrMalformed},
	} {
		got, err := v.Verify(t.Context(), test.raw, []*rotav1.AuthMethod{test.method})
		if !errors.Is(err, test.want) || (test.want == nil) != (err == nil) {
			t.Errorf("%s: %v, want %v", name, err, test.want)
		}
		if err == nil && (got.Subject != "system:serviceaccount:search:bot" || got.Method != test.method.Name || len(got.Claims["aud"]) != 2) {
			t.Errorf("%s: %+v", name, got)
		}
	}
	if _, err := v.Verify(t.Context(), rs.sign(t, claims()), nil); !errors.Is(err, ErrIssuer) {
		t.Errorf("without methods: %v", err)
	}
}

// TestKeysRotate: a new key is known as soon as a token names it, one that was taken back is not
// accepted for long, and while the issuer is down its keys last for an hour.
func TestKeysRotate(t *testing.T) {
	i := newIssuer(t)
	one, two := newKey(t, "one", jose.ES256), newKey(t, "two", jose.ES256)
	i.rotate(one)
	now := time.Unix(1_800_000_000, 0)
	v := New(i.Client(), func() time.Time { return now })
	method := &rotav1.AuthMethod{Name: "m", Issuer: i.URL, Audiences: []string{"rota"}, JwksUrl: i.URL + "/keys"}
	verify := func(k key) error {
		_, err := v.Verify(t.Context(), k.sign(t, josejwt.Claims{
			Issuer: i.URL, Subject: "s", Audience: josejwt.Audience{"rota"}, Expiry: josejwt.NewNumericDate(now.Add(time.Minute)),
		}), []*rotav1.AuthMethod{method})
		return err
	}
	if err := verify(one); err != nil {
		t.Fatal(err)
	}
	// Unknown keys do not make the server ask more often than it may.
	for range 10 {
		if err := verify(two); !errors.Is(err, ErrSignature) {
			t.Errorf("a key that is not published: %v", err)
		}
	}
	if i.fetches != 1 {
		t.Errorf("the keys were fetched %d times", i.fetches)
	}
	i.rotate(two)
	now = now.Add(fetchPause)
	if err := verify(two); err != nil {
		t.Errorf("the new key: %v", err)
	}
	if err := verify(one); !errors.Is(err, ErrSignature) {
		t.Errorf("the old key: %v", err)
	}
	i.set(true)
	now = now.Add(staleFor)
	if err := verify(two); err != nil {
		t.Errorf("while the issuer is down: %v", err)
	}
	now = now.Add(time.Minute)
	if err := verify(two); !errors.Is(err, ErrKeys) {
		t.Errorf("when the issuer has been down for too long: %v", err)
	}
	i.set(false)
	now = now.Add(fetchPause)
	if err := verify(two); err != nil {
		t.Errorf("when the issuer is back: %v", err)
	}
}

// TestAnIssuerThatHangs: who has waited while somebody else asked the issuer does not ask it once
// more, else callers would wait for it one after the other.
func TestAnIssuerThatHangs(t *testing.T) {
	now, asked := time.Unix(1_800_000_000, 0), 0
	issuer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked++
		now = now.Add(fetchPause)
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	defer issuer.Close()
	v := New(issuer.Client(), func() time.Time { return now })
	method := &rotav1.AuthMethod{Name: "m", Issuer: issuer.URL, Audiences: []string{"rota"}, JwksUrl: issuer.URL}
	token := newKey(t, "one", jose.ES256).sign(t, josejwt.Claims{Issuer: issuer.URL, Subject: "s", Audience: josejwt.Audience{"rota"}})
	for range 3 {
		if _, err := v.Verify(t.Context(), token, []*rotav1.AuthMethod{method}); !errors.Is(err, ErrKeys) {
			t.Error(err)
		}
	}
	if asked != 1 {
		t.Errorf("the issuer was asked %d times", asked)
	}
}

// TestAnIssuerThatHangsHoldsNobodyUp: callers whose key is known go on while the issuer is asked for
// newer ones, and callers whose key is not known do not wait for longer than they want.
func TestAnIssuerThatHangsHoldsNobodyUp(t *testing.T) {
	one, two := newKey(t, "one", jose.ES256), newKey(t, "two", jose.ES256)
	hang, hangs := make(chan struct{}), make(chan struct{}, 1)
	asked := 0
	issuer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if asked++; asked > 1 {
			hangs <- struct{}{}
			<-hang
		}
		_ = json.NewEncoder(w).Encode(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: one.signer.Public(), KeyID: "one"}}})
	}))
	defer issuer.Close()
	defer close(hang)
	now := time.Unix(1_800_000_000, 0)
	v := New(issuer.Client(), func() time.Time { return now })
	methods := []*rotav1.AuthMethod{{Name: "m", Issuer: issuer.URL, Audiences: []string{"rota"}, JwksUrl: issuer.URL}}
	verify := func(ctx context.Context, k key) error {
		_, err := v.Verify(ctx, k.sign(t, josejwt.Claims{
			Issuer: issuer.URL, Subject: "s", Audience: josejwt.Audience{"rota"}, Expiry: josejwt.NewNumericDate(now.Add(time.Minute)),
		}), methods)
		return err
	}
	if err := verify(t.Context(), one); err != nil {
		t.Fatal(err)
	}
	now = now.Add(freshFor + time.Second)
	for range 2 {
		if err := verify(t.Context(), one); err != nil {
			t.Errorf("a known key: %v", err)
		}
	}
	<-hangs // the issuer was asked
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if err := verify(gone, two); !errors.Is(err, ErrKeys) {
		t.Errorf("an unknown key: %v", err)
	}
}

// TestAnUnknownKeyWhileTheIssuerIsDown: it may be a new one, so nothing is wrong with the token yet.
func TestAnUnknownKeyWhileTheIssuerIsDown(t *testing.T) {
	i := newIssuer(t)
	one, two := newKey(t, "one", jose.ES256), newKey(t, "two", jose.ES256)
	i.rotate(one)
	now := time.Unix(1_800_000_000, 0)
	v := New(i.Client(), func() time.Time { return now })
	method := &rotav1.AuthMethod{Name: "m", Issuer: i.URL, Audiences: []string{"rota"}, JwksUrl: i.URL + "/keys"}
	other := &rotav1.AuthMethod{Name: "n", Issuer: i.URL, Audiences: []string{"rota"}, JwksUrl: i.URL + "/keys", Algorithms: []string{"RS256"}}
	verify := func(k key, methods ...*rotav1.AuthMethod) error {
		_, err := v.Verify(t.Context(), k.sign(t, josejwt.Claims{
			Issuer: i.URL, Subject: "s", Audience: josejwt.Audience{"rota"}, Expiry: josejwt.NewNumericDate(now.Add(time.Minute)),
		}), methods)
		return err
	}
	if err := verify(one, method); err != nil {
		t.Fatal(err)
	}
	i.set(true)
	now = now.Add(fetchPause)
	if err := verify(two, method, other); !errors.Is(err, ErrKeys) {
		t.Errorf("while the issuer is down: %v", err)
	}
	i.set(false)
	now = now.Add(fetchPause)
	if err := verify(two, method); !errors.Is(err, ErrSignature) {
		t.Errorf("when the issuer is back: %v", err)
	}
}

// TestKeysOfAFile: keys may be in a file, and what is in it is never said.
func TestKeysOfAFile(t *testing.T) {
	k := newKey(t, "k", jose.EdDSA)
	path := filepath.Join(t.TempDir(), "keys.json")
	write := func(raw []byte) {
		if err := os.WriteFile(path, raw, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	raw, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: k.signer.Public(), KeyID: "k"}}})
	if err != nil {
		t.Fatal(err)
	}
	method := &rotav1.AuthMethod{Name: "m", Issuer: "https://issuer.example", Audiences: []string{"rota"}, JwksFile: path}
	token := k.sign(t, josejwt.Claims{
		Issuer: method.Issuer, Subject: "s", Audience: josejwt.Audience{"rota"}, Expiry: josejwt.NewNumericDate(time.Now().Add(time.Minute)),
	})
	verify := func() error {
		_, err := New(http.DefaultClient, time.Now).Verify(t.Context(), token, []*rotav1.AuthMethod{method})
		return err
	}
	write(raw)
	if err := verify(); err != nil {
		t.Error(err)
	}
	write([]byte("root:secret-of-the-machine"))
	if err := verify(); !errors.Is(err, ErrKeys) || strings.Contains(err.Error(), "secret-of-the-machine") {
		t.Errorf("a file that has no keys: %v", err)
	}
}

// TestAnIssuerWithAnAuthorityOfItsOwn: its certificate is checked by the file of the method only, which
// is read again when its keys are fetched.
func TestAnIssuerWithAnAuthorityOfItsOwn(t *testing.T) {
	i := &issuer{}
	i.Server = httptest.NewTLSServer(i.handler())
	t.Cleanup(i.Close)
	k := newKey(t, "k", jose.ES256)
	i.rotate(k)
	dir := t.TempDir()
	file := func(name string, content []byte) string {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
		return filepath.Join(dir, name)
	}
	verify := func(ca string) error {
		_, err := New(&http.Client{Timeout: time.Minute}, time.Now).Verify(t.Context(), k.sign(t, josejwt.Claims{
			Issuer: i.URL, Subject: "s", Audience: josejwt.Audience{"rota"}, Expiry: josejwt.NewNumericDate(time.Now().Add(time.Minute)),
		}), []*rotav1.AuthMethod{{Name: "m", Issuer: i.URL, Audiences: []string{"rota"}, JwksCaFile: ca}})
		return err
	}
	if err := verify(file("ca.pem", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: i.Certificate().Raw}))); err != nil {
		t.Error(err)
	}
	for ca, says := range map[string]string{
		"":                                   "certificate",
		filepath.Join(dir, "none"):           "no such file",
		file("bad.pem", []byte("secret")):    "has no certificate in PEM",
		file("other.pem", otherAuthority(t)): "certificate",
		"/dev/zero":                          "is no file",
	} {
		if err := verify(ca); !errors.Is(err, ErrKeys) || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "secret") {
			t.Errorf("with %q: %v, want %q", ca, err, says)
		}
	}
}

// otherAuthority is the certificate of one that has nothing to do with the issuer.
func otherAuthority(t *testing.T) []byte {
	k := newKey(t, "other", jose.ES256)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, k.signer.Public(), k.signer)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// FuzzVerify: no token makes it panic, and none without a signature of the issuer is valid.
func FuzzVerify(f *testing.F) {
	f.Add("eyJhbGciOiJub25lIn0.e30.")
	f.Add("eyJhbGciOiJFUzI1NiJ9.eyJpc3MiOiJpIiwiYXVkIjoiciJ9.AAAA")
	v := New(http.DefaultClient, time.Now)
	methods := []*rotav1.AuthMethod{{Name: "m", Issuer: "i", Audiences: []string{"r"}, JwksFile: filepath.Join(f.TempDir(), "none")}}
	f.Fuzz(func(t *testing.T, raw string) {
		if got, err := v.Verify(t.Context(), raw, methods); err == nil {
			t.Errorf("%q is valid: %+v", raw, got)
		}
	})
}
