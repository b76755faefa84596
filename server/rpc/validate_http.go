package rpc

import (
	"net/url"
	"strings"

	rotav1 "rota/api/gen/rota/v1"
)

// Limits of HTTP calls. A body is below what an action may have in all, so that
// one that is too long is told so, and not that its command is.
const (
	urlBytesMax  = 8 << 10
	bodyBytesMax = 48 << 10
	headersMax   = 64
	acceptMax    = 16
)

// checkWork checks what an action does: a command or an HTTP call.
func checkWork(s *rotav1.ActionSpec) *violation {
	switch {
	case s.Command == nil && s.Http == nil:
		return wrong("command", "is required, unless http is given")
	case s.Http == nil:
		return checkCommand(s.Command)
	case s.Command != nil:
		return wrong("http", "is given beside command: an action has one of the two")
	}
	return checkCall(s.Http).in("http")
}

func checkCall(c *rotav1.HttpCall) *violation {
	if v := firstOf(checkMethod(c.Method), checkURL(c.Url)); v != nil {
		return v
	}
	if len(c.Body) > bodyBytesMax {
		return wrong("body", "must have at most %d bytes, has %d", bodyBytesMax, len(c.Body))
	}
	if len(c.Headers) > headersMax {
		return wrong("headers", "must have at most %d headers, has %d", headersMax, len(c.Headers))
	}
	names := make(map[string]bool, len(c.Headers))
	for name, value := range c.Headers {
		if v := checkHeader(name, value); v != nil {
			return v
		}
		lower := strings.ToLower(name)
		if names[lower] {
			return wrong("headers", "has %q twice: upper and lower case are the same in names of headers", lower)
		}
		names[lower] = true
	}
	if len(c.Accept) > acceptMax {
		return wrong("accept", "must have at most %d statuses, has %d", acceptMax, len(c.Accept))
	}
	for _, status := range c.Accept {
		if status < 100 || status > 599 {
			return wrong("accept", "must have statuses from 100 to 599, has %d", status)
		}
	}
	return nil
}

func checkMethod(method string) *violation {
	switch {
	case method != "" && !isToken(method):
		return wrong("method", "is not a method: %q", method)
	case strings.EqualFold(method, "CONNECT"):
		return wrong("method", "must not be CONNECT, which asks for no answer but for a tunnel")
	}
	return nil
}

func checkURL(text string) *violation {
	if v := checkText("url", text, urlBytesMax); v != nil {
		return v
	}
	address, v := withEngine(text)
	if v != nil {
		return v
	}
	u, err := url.Parse(address)
	switch {
	case text == "":
		return wrong("url", "is required")
	case err != nil:
		return wrong("url", "is not a URL: %q", text)
	case u.Scheme != "http" && u.Scheme != "https":
		return wrong("url", "must begin with http:// or https://, is %q", text)
	case u.Hostname() == "":
		return wrong("url", "must name a host, is %q", text)
	case u.User != nil:
		return wrong("url", "must not hold a user, since lists show it: use a header Authorization")
	}
	return nil
}

// ofConnection are headers that say how a message is sent, which is not for the
// caller to say.
var ofConnection = map[string]bool{
	"connection": true, "content-length": true, "keep-alive": true, "proxy-connection": true,
	"te": true, "trailer": true, "transfer-encoding": true, "upgrade": true,
}

func checkHeader(name, value string) *violation {
	lower := strings.ToLower(name)
	switch {
	case !isToken(name):
		return wrong("headers", "has the name %q, which is not one of a header", name)
	case strings.HasPrefix(lower, "rota-"):
		return wrong("headers", "has the name %q: what begins with Rota- is set by rota", name)
	case ofConnection[lower]:
		return wrong("headers", "has the name %q, which the agent sets", name)
	}
	if v := checkText("", value, specBytesMax); v != nil {
		return v.in("headers[%q]", name)
	}
	for i := range len(value) {
		if c := value[i]; c < ' ' && c != '\t' || c == 0x7f {
			return wrong("", "must not contain control characters").in("headers[%q]", name)
		}
	}
	return nil
}

// isToken is what RFC 9110 calls one: names of methods and headers.
func isToken(s string) bool {
	for i := range len(s) {
		c := s[i]
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !letter && strings.IndexByte("!#$%&'*+-.^_`|~", c) < 0 {
			return false
		}
	}
	return s != ""
}
