package rights

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strings"

	"rota/api/pki"
)

const (
	// SecretPrefix begins the secrets of tokens, so that people and scanners recognize them.
	SecretPrefix = "rota_"
	// secretBytes are the random bytes of a secret: 256 bits, which nobody can guess, so a fast
	// hash of them is enough.
	secretBytes = 32
	// bearerMax bounds the credentials of a call in bytes.
	bearerMax = 16 << 10
	// EnvToken is the environment variable from which clients take a token.
	EnvToken = "ROTA_TOKEN"
)

var (
	// ErrSecret: the text is not the secret of a token.
	ErrSecret = errors.New("this is not the secret of a token: it must be rota_ and 43 more characters")
	// ErrBearer: the header is not of the form that is understood.
	ErrBearer = errors.New("the header Authorization must be: Bearer TOKEN")
)

// NewSecret returns the secret of a new token, and its hash.
func NewSecret() (secret string, hash []byte) {
	raw := make([]byte, secretBytes)
	_, _ = rand.Read(raw) // it never fails: crypto/rand ends the process instead
	secret = SecretPrefix + base64.RawURLEncoding.EncodeToString(raw)
	return secret, hashOf(raw)
}

// NewAccessor returns a new accessor ID: 128 random bits.
func NewAccessor() string {
	raw := make([]byte, 16)
	_, _ = rand.Read(raw)
	return hex.EncodeToString(raw)
}

// IsSecret reports whether credentials are meant to be the secret of a token.
func IsSecret(bearer string) bool { return strings.HasPrefix(bearer, SecretPrefix) }

// HashSecret returns the hash by which a secret is found, or ErrSecret.
func HashSecret(secret string) ([]byte, error) {
	text, ok := strings.CutPrefix(secret, SecretPrefix)
	if !ok {
		return nil, ErrSecret
	}
	raw, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || len(raw) != secretBytes || strings.ContainsAny(text, "\r\n") {
		return nil, ErrSecret
	}
	return hashOf(raw), nil
}

func hashOf(raw []byte) []byte {
	sum := sha256.Sum256(raw)
	return sum[:]
}

// SameHash compares two hashes in a time that does not depend on where they differ.
func SameHash(a, b []byte) bool { return subtle.ConstantTimeCompare(a, b) == 1 }

// Bearer returns the credentials in the value of a header Authorization: empty without a value,
// ErrBearer if they are of another kind.
func Bearer(header string) (string, error) {
	if header == "" {
		return "", nil
	}
	scheme, token, ok := strings.Cut(header, " ")
	token = strings.TrimSpace(token)
	if !ok || !strings.EqualFold(scheme, "Bearer") || token == "" || len(token) > bearerMax || strings.ContainsAny(token, " \t\r\n") {
		return "", ErrBearer
	}
	return token, nil
}

// FromEnvironment returns the token of a client: the content of a file if there is a path, else
// that of ROTA_TOKEN; empty if there is neither. The file must be private, like a key.
func FromEnvironment(path string) (string, error) {
	if path == "" {
		return strings.TrimSpace(os.Getenv(EnvToken)), nil
	}
	raw, err := pki.ReadSecret(path)
	if err != nil {
		return "", fmt.Errorf("token file: %w", err)
	}
	token := strings.TrimSpace(string(raw))
	if token == "" {
		return "", fmt.Errorf("the token file %s is empty: put the secret of a token or a JWT into it", path)
	}
	return token, nil
}
