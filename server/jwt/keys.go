package jwt

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"

	rotav1 "rota/api/gen/rota/v1"
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
	mu      sync.Mutex // held while the set is fetched
	keys    []jose.JSONWebKey
	at      time.Time // when keys were fetched; zero: never
	triedAt time.Time
}

func newKeys(client *http.Client, now func() time.Time) *keys {
	return &keys{client: client, now: now, sets: map[string]*keySet{}}
}

// of returns the keys of a method's issuer that may have signed with an algorithm: those with the
// ID, or all if the token names none.
func (k *keys) of(ctx context.Context, m *rotav1.AuthMethod, id, algorithm string) ([]jose.JSONWebKey, error) {
	source := strings.Join([]string{m.JwksUrl, m.JwksFile, m.Issuer}, "\x00")
	k.mu.Lock()
	set := k.sets[source]
	if set == nil {
		set = &keySet{}
		k.sets[source] = set
	}
	k.mu.Unlock()
	set.mu.Lock()
	defer set.mu.Unlock()
	found := matching(set.keys, id, algorithm)
	now := k.now()
	age := now.Sub(set.at)
	var err error
	if (len(found) == 0 || age > freshFor || set.at.IsZero()) && (set.triedAt.IsZero() || now.Sub(set.triedAt) >= fetchPause) {
		var fresh []jose.JSONWebKey
		fresh, err = k.fetch(ctx, m)
		// Counted from its end, so that those who waited for it do not each wait for another one.
		set.triedAt = k.now()
		if err == nil {
			set.keys, set.at, age = fresh, now, 0
			found = matching(set.keys, id, algorithm)
		}
	}
	switch {
	case set.at.IsZero() || age > staleFor:
		return nil, fmt.Errorf("%w%s", ErrKeys, because(err))
	case len(found) == 0:
		return nil, ErrSignature
	}
	return found, nil
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
func (k *keys) fetch(ctx context.Context, m *rotav1.AuthMethod) ([]jose.JSONWebKey, error) {
	if m.JwksFile != "" {
		f, err := os.Open(m.JwksFile)
		if err != nil {
			return nil, err
		}
		defer func() { _ = f.Close() }()
		raw, err := io.ReadAll(io.LimitReader(f, keysBytesMax+1))
		if err != nil {
			return nil, err
		}
		return parse(raw)
	}
	url := m.JwksUrl
	if url == "" {
		var err error
		if url, err = k.discover(ctx, m.Issuer); err != nil {
			return nil, err
		}
	}
	raw, err := k.get(ctx, url)
	if err != nil {
		return nil, err
	}
	return parse(raw)
}

// discover asks the issuer where its keys are (OpenID Connect Discovery 1.0, section 4).
func (k *keys) discover(ctx context.Context, issuer string) (url string, err error) {
	raw, err := k.get(ctx, strings.TrimSuffix(issuer, "/")+"/.well-known/openid-configuration")
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

func (k *keys) get(ctx context.Context, url string) ([]byte, error) {
	// What one caller began is good for all, so it does not end with that caller.
	req, err := http.NewRequestWithContext(context.WithoutCancel(ctx), http.MethodGet, url, http.NoBody)
	if err != nil {
		return nil, err
	}
	resp, err := k.client.Do(req)
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
