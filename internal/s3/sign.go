package s3

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

const (
	algorithm = "AWS4-HMAC-SHA256"
	amzTime   = "20060102T150405Z"
)

// Credentials sign requests.
type Credentials struct {
	// AccessKey names the key, Secret is it. Session is the token of temporary credentials.
	AccessKey, Secret, Session string
}

// sign adds the signature to a request whose body has the SHA-256 payload, in hex. All headers that
// the request has are signed.
func sign(r *http.Request, payload, region string, c Credentials, now time.Time) {
	at := now.UTC().Format(amzTime)
	r.Header.Set("X-Amz-Date", at)
	r.Header.Set("X-Amz-Content-Sha256", payload)
	if c.Session != "" {
		r.Header.Set("X-Amz-Security-Token", c.Session)
	}
	headers := []string{"host"}
	for name := range r.Header {
		headers = append(headers, strings.ToLower(name))
	}
	slices.Sort(headers)
	signed := strings.Join(headers, ";")
	canonical := strings.Builder{}
	canonical.WriteString(r.Method + "\n" + escape(r.URL.Path, true) + "\n" + canonicalQuery(r.URL.Query()) + "\n")
	for _, name := range headers {
		value := strings.TrimSpace(r.Header.Get(name))
		if name == "host" {
			value = r.URL.Host
		}
		canonical.WriteString(name + ":" + value + "\n")
	}
	canonical.WriteString("\n" + signed + "\n" + payload)

	scope := at[:8] + "/" + region + "/s3/aws4_request"
	text := algorithm + "\n" + at + "\n" + scope + "\n" + hexSum([]byte(canonical.String()))
	key := []byte("AWS4" + c.Secret)
	for _, part := range []string{at[:8], region, "s3", "aws4_request"} {
		key = mac(key, part)
	}
	r.Header.Set("Authorization", algorithm+" Credential="+c.AccessKey+"/"+scope+",SignedHeaders="+signed+",Signature="+hex.EncodeToString(mac(key, text)))
}

func mac(key []byte, text string) []byte {
	h := hmac.New(sha256.New, key)
	_, _ = h.Write([]byte(text)) // never fails
	return h.Sum(nil)
}

func hexSum(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// canonicalQuery writes parameters in the order of their names. No name occurs twice.
func canonicalQuery(q url.Values) string {
	names := make([]string, 0, len(q))
	for name := range q {
		names = append(names, name)
	}
	slices.Sort(names)
	parts := make([]string, len(names))
	for i, name := range names {
		parts[i] = escape(name, false) + "=" + escape(q.Get(name), false)
	}
	return strings.Join(parts, "&")
}

// escape is UriEncode of the specification: everything but unreserved characters, and slashes if it
// is not of a path.
func escape(s string, path bool) string {
	var b strings.Builder
	for _, c := range []byte(s) {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '-', c == '.', c == '_', c == '~', c == '/' && path:
			b.WriteByte(c)
		default:
			b.WriteString("%" + strings.ToUpper(hex.EncodeToString([]byte{c})))
		}
	}
	return b.String()
}
