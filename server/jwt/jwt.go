package jwt

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/go-jose/go-jose/v4"
	josejwt "github.com/go-jose/go-jose/v4/jwt"

	rotav1 "rota/api/gen/rota/v1"
	"rota/api/rights"
)

const (
	// skewDefault is how much clocks may differ if a method does not say.
	skewDefault = 30 * time.Second
	// lifetimeMax bounds the time for which an issuer may have made a token.
	lifetimeMax = 90 * 24 * time.Hour
	// valuesMax bounds the values of one claim.
	valuesMax = 1024
)

// Errors of tokens, one for each fact.
var (
	// ErrMalformed: it is no JWT, or not one with an allowed algorithm.
	ErrMalformed = errors.New("the token is no JWT that is signed with an allowed algorithm")
	// ErrIssuer: no auth method is for its issuer and audience.
	ErrIssuer = errors.New("no auth method is for the issuer and audience of the JWT: an operator can make one with rota acl auth-method put")
	// ErrSignature: none of the issuer's keys has signed it.
	ErrSignature = errors.New("the signature of the JWT is not from a key of its issuer")
	// ErrDates: it has no expiry, has expired, or is not valid yet.
	ErrDates = errors.New("the JWT is not valid at this time: get a new one, and compare the clocks")
	// ErrKeys: the issuer's keys are not to be had.
	ErrKeys = errors.New("the keys of the issuer of the JWT cannot be read at the moment: try again")
)

// Verifier checks tokens. It is safe for concurrent use.
type Verifier struct {
	keys *keys
	now  func() time.Time
}

// New returns a verifier that fetches keys with an HTTP client, which must bound the time of a
// call.
func New(client *http.Client, now func() time.Time) *Verifier {
	return &Verifier{keys: newKeys(client, now), now: now}
}

// Identity is what a valid token says.
type Identity struct {
	// Method is the name of the auth method that it was valid for.
	Method, Subject string
	// Claims are those that are strings or lists of strings.
	Claims map[string][]string
	// Expires is when it stops being valid, by the server's wall clock, with what clocks may differ.
	Expires time.Time
}

// Verify checks a token against the methods for its issuer, and returns what it says.
func (v *Verifier) Verify(ctx context.Context, raw string, methods []*rotav1.AuthMethod) (*Identity, error) {
	token, err := josejwt.ParseSigned(raw, []jose.SignatureAlgorithm{jose.RS256, jose.ES256, jose.EdDSA})
	if err != nil || len(token.Headers) != 1 {
		return nil, ErrMalformed
	}
	var said josejwt.Claims
	if err := token.UnsafeClaimsWithoutVerification(&said); err != nil {
		return nil, ErrMalformed
	}
	reason := ErrIssuer
	for _, m := range methods {
		if m.Issuer != said.Issuer || said.Issuer == "" || !slices.ContainsFunc(m.Audiences, said.Audience.Contains) {
			continue
		}
		identity, err := v.verify(ctx, token, m)
		if err == nil {
			return identity, nil
		}
		if !errors.Is(reason, ErrKeys) { // else the token may yet be valid
			reason = err
		}
	}
	return nil, reason
}

func (v *Verifier) verify(ctx context.Context, token *josejwt.JSONWebToken, m *rotav1.AuthMethod) (*Identity, error) {
	head := token.Headers[0]
	allowed := m.Algorithms
	if len(allowed) == 0 {
		allowed = rights.Algorithms()
	}
	if !slices.Contains(allowed, head.Algorithm) {
		return nil, ErrMalformed
	}
	found, err := v.keys.of(ctx, m, head.KeyID, head.Algorithm)
	if err != nil {
		return nil, err
	}
	var claims josejwt.Claims
	var all map[string]json.RawMessage
	good := slices.ContainsFunc(found, func(k jose.JSONWebKey) bool { return token.Claims(k.Key, &claims, &all) == nil })
	if !good {
		return nil, ErrSignature
	}
	if err := v.checkDates(&claims, m); err != nil {
		return nil, err
	}
	if claims.Subject == "" {
		return nil, ErrMalformed
	}
	return &Identity{
		Method: m.Name, Subject: claims.Subject, Claims: texts(all), Expires: claims.Expiry.Time().Add(skewOf(m)),
	}, nil
}

// checkDates: exp is required, and nbf and iat count if they are there.
func (v *Verifier) checkDates(c *josejwt.Claims, m *rotav1.AuthMethod) error {
	if c.Expiry == nil {
		return fmt.Errorf("%w (it has no exp)", ErrDates)
	}
	if err := c.ValidateWithLeeway(josejwt.Expected{Time: v.now()}, skewOf(m)); err != nil {
		return fmt.Errorf("%w (%v)", ErrDates, err)
	}
	if c.IssuedAt != nil && c.Expiry.Time().Sub(c.IssuedAt.Time()) > lifetimeMax {
		return fmt.Errorf("%w (it was made for more than %v)", ErrDates, lifetimeMax)
	}
	return nil
}

// skewOf is how much clocks may differ.
func skewOf(m *rotav1.AuthMethod) time.Duration {
	if skew := m.ClockSkew.AsDuration(); skew > 0 {
		return skew
	}
	return skewDefault
}

// texts are the claims that are strings or lists of strings.
func texts(all map[string]json.RawMessage) map[string][]string {
	claims := map[string][]string{}
	for name, raw := range all {
		var one string
		var list []string
		switch {
		case json.Unmarshal(raw, &one) == nil:
			claims[name] = []string{one}
		case json.Unmarshal(raw, &list) == nil && len(list) <= valuesMax:
			claims[name] = list
		}
	}
	return claims
}
