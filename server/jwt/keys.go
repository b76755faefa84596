package jwt

import (
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/go-jose/go-jose/v4"

	rotav1 "rota/api/gen/rota/v1"
	"rota/api/pki"
)

const (
	// freshFor is how long keys are used before they are fetched again. So a key that the issuer
	// has taken back is not accepted for longer.
	freshFor = 5 * time.Minute
	// staleFor is how long keys are used while the issuer does not answer.
	staleFor = time.Hour
	// fetchPause is the least time between two fetches for one issuer: a caller with unknown
	// keys must not make the server flood the issuer.
	fetchPause = 5 * time.Second
	// refreshWait is how long after the beginning of a fetch those wait for it who could use the keys
	// from before: an issuer that hangs must not hold them up.
	refreshWait = time.Second
	// fetchWait is how long those wait for it who cannot.
	fetchWait = 10 * time.Second
	// keysBytesMax bounds a set of keys.
	keysBytesMax = 1 << 20
	// keysMax bounds the keys of a set.
	keysMax = 256
	// rsaBitsMin is the least length of an RSA key (NIST SP 800-131A).
	rsaBitsMin = 2048
)

// keys has the sets of keys of issuers by where they are from.
type keys struct {
	client *http.Client
	now    func() time.Time
	mu     sync.Mutex
	sets   map[string]*keySet
}

type keySet struct {
	mu      sync.Mutex
	keys    []jose.JSONWebKey
	at      time.Time // when keys were fetched; zero: never
	triedAt time.Time // when the newest fetch ended
	err     error     // why that failed
	under   *fetching // nil: no fetch is under way
}

// fetching is a fetch under way. It belongs to no caller: what one has begun is good for all.
type fetching struct {
	began time.Time
	done  chan struct{}
}

func newKeys(client *http.Client, now func() time.Time) *keys {
	return &keys{client: client, now: now, sets: map[string]*keySet{}}
}

// of returns the keys of a method's issuer that may have signed with an algorithm: those with the
// ID, or all if the token names none. ErrSignature: the issuer has no such key. ErrKeys: nothing is
// known of that, as the issuer does not answer.
func (k *keys) of(ctx context.Context, m *rotav1.AuthMethod, id, algorithm string) ([]jose.JSONWebKey, error) {
	set := k.setOf(m)
	found, under, err := k.look(set, m, id, algorithm)
	if under == nil {
		return found, err
	}
	wait := fetchWait
	if err == nil {
		wait = refreshWait
	}
	enough := time.NewTimer(time.Until(under.began.Add(wait)))
	defer enough.Stop()
	select {
	case <-under.done:
	case <-enough.C:
	case <-ctx.Done():
		return nil, fmt.Errorf("%w (%w)", ErrKeys, context.Cause(ctx))
	}
	found, _, err = k.look(set, m, id, algorithm)
	return found, err
}

func (k *keys) setOf(m *rotav1.AuthMethod) *keySet {
	source := strings.Join([]string{m.JwksUrl, m.JwksFile, m.JwksCaFile, m.Issuer}, "\x00")
	k.mu.Lock()
	defer k.mu.Unlock()
	set := k.sets[source]
	if set == nil {
		set = &keySet{}
		k.sets[source] = set
	}
	return set
}

// look finds keys in a set as it is, and the fetch that may find more or newer ones. It begins one if
// one is due.
func (k *keys) look(set *keySet, m *rotav1.AuthMethod, id, algorithm string) (found []jose.JSONWebKey, under *fetching, err error) {
	set.mu.Lock()
	defer set.mu.Unlock()
	found = matching(set.keys, id, algorithm)
	now := k.now()
	age := now.Sub(set.at)
	if len(found) == 0 || age > freshFor || set.at.IsZero() {
		if set.under == nil && (set.triedAt.IsZero() || now.Sub(set.triedAt) >= fetchPause) {
			set.under = &fetching{began: time.Now(), done: make(chan struct{})}
			go k.refresh(set, m, now)
		}
		under = set.under
	}
	switch {
	case set.at.IsZero() || age > staleFor || len(found) == 0 && set.err != nil:
		return nil, under, fmt.Errorf("%w%s", ErrKeys, because(set.err))
	case len(found) == 0:
		return nil, under, ErrSignature
	}
	return found, under, nil
}

// refresh fetches the keys of a set, and ends the fetch that is under way.
func (k *keys) refresh(set *keySet, m *rotav1.AuthMethod, now time.Time) {
	fresh, err := k.fetch(m)
	set.mu.Lock()
	defer set.mu.Unlock()
	// The pause counts from the end, so that those who waited do not each begin another fetch.
	set.triedAt, set.err = k.now(), err
	if err == nil {
		set.keys, set.at = fresh, now
	}
	close(set.under.done)
	set.under = nil
}

func because(err error) string {
	if err == nil {
		return ""
	}
	return " (" + err.Error() + ")"
}

// matching are the keys with an ID, or all without one, of the type for an algorithm.
func matching(all []jose.JSONWebKey, id, algorithm string) (found []jose.JSONWebKey) {
	for _, k := range all {
		if (id == "" || k.KeyID == id) && (k.Algorithm == "" || k.Algorithm == algorithm) && (k.Use == "" || k.Use == "sig") && suits(k.Key, algorithm) {
			found = append(found, k)
		}
	}
	return found
}

// suits: a key is good for the algorithm of its own type only. So a public key is never taken for
// a secret.
func suits(key any, algorithm string) bool {
	switch k := key.(type) {
	case *rsa.PublicKey:
		return algorithm == "RS256" && k.N.BitLen() >= rsaBitsMin
	case *ecdsa.PublicKey:
		return algorithm == "ES256" && k.Curve.Params().BitSize == 256
	case ed25519.PublicKey:
		return algorithm == "EdDSA"
	}
	return false
}

// fetch reads the keys of a method's issuer.
func (k *keys) fetch(m *rotav1.AuthMethod) ([]jose.JSONWebKey, error) {
	if m.JwksFile != "" {
		raw, err := readFile(m.JwksFile)
		if err != nil {
			return nil, err
		}
		return parse(raw)
	}
	client, err := k.clientOf(m)
	if err != nil {
		return nil, err
	}
	url := m.JwksUrl
	if url == "" {
		if url, err = discover(client, m.Issuer); err != nil {
			return nil, err
		}
	}
	raw, err := get(client, url)
	if err != nil {
		return nil, err
	}
	return parse(raw)
}

// readFile reads a file that a method names: one that never ends, or is no file, holds nothing up.
func readFile(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is no file: %w", path, cmp.Or(err, fs.ErrInvalid))
	}
	return io.ReadAll(io.LimitReader(f, keysBytesMax+1))
}

// clientOf is what asks a method's issuer. The authorities are read each time, as they rotate, so no
// connection is kept.
func (k *keys) clientOf(m *rotav1.AuthMethod) (*http.Client, error) {
	if m.JwksCaFile == "" {
		return k.client, nil
	}
	raw, err := readFile(m.JwksCaFile)
	if err != nil {
		return nil, err
	}
	pool, err := pki.Authorities(m.JwksCaFile, raw)
	if err != nil {
		return nil, err
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	transport.DisableKeepAlives = true
	client := *k.client
	client.Transport = transport
	return &client, nil
}

// discover asks the issuer where its keys are (OpenID Connect Discovery 1.0, section 4).
func discover(client *http.Client, issuer string) (url string, err error) {
	raw, err := get(client, strings.TrimSuffix(issuer, "/")+"/.well-known/openid-configuration")
	if err != nil {
		return "", err
	}
	var c struct {
		Issuer  string `json:"issuer"`
		JWKSURI string `json:"jwks_uri"`
	}
	if err := json.Unmarshal(raw, &c); err != nil {
		return "", fmt.Errorf("the configuration of the issuer is no JSON")
	}
	if c.Issuer != issuer || c.JWKSURI == "" {
		return "", fmt.Errorf("the configuration of the issuer is for another issuer, or names no keys")
	}
	if strings.HasPrefix(issuer, "https://") && !strings.HasPrefix(c.JWKSURI, "https://") {
		return "", fmt.Errorf("the configuration of the issuer names keys that do not come over https")
	}
	return c.JWKSURI, nil
}

func get(client *http.Client, url string) ([]byte, error) {
	req, err := http.NewRequestWithContext(context.Background(), http.MethodGet, url, http.NoBody)
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the issuer answers %s", resp.Status)
	}
	return io.ReadAll(io.LimitReader(resp.Body, keysBytesMax+1))
}

// parse reads a JSON Web Key Set (RFC 7517). Keys that are not understood are passed over, as
// issuers may have others too. The error has nothing of the text.
func parse(raw []byte) ([]jose.JSONWebKey, error) {
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if len(raw) > keysBytesMax || json.Unmarshal(raw, &set) != nil || len(set.Keys) > keysMax {
		return nil, fmt.Errorf("the keys are no JSON Web Key Set of at most %d keys and %d bytes", keysMax, keysBytesMax)
	}
	var all []jose.JSONWebKey
	for _, one := range set.Keys {
		var k jose.JSONWebKey
		if k.UnmarshalJSON(one) == nil && k.IsPublic() {
			all = append(all, k)
		}
	}
	return all, nil
}
