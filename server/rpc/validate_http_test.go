package rpc

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	rotav1 "rota/api/gen/rota/v1"
)

func callSpec() *rotav1.ActionSpec {
	return &rotav1.ActionSpec{
		Resources: &rotav1.Resources{Cores: proto.Uint32(0), Quotas: []*rotav1.QuotaDemand{{Quota: "engine"}}},
		Http: &rotav1.HttpCall{
			Method: "PUT", Url: "https://engine:8000/wake_up?tags=weights", Body: []byte("\xff"),
			Headers: map[string]string{"Authorization": "Bearer a\tb", "content-type": "x", "Host": "h"}, Accept: []uint32{200, 404},
		},
	}
}

func TestCallsAreRefusedWithThePathOfWhatIsWrong(t *testing.T) {
	header := func(name, value string) func(*rotav1.ActionSpec) {
		return func(s *rotav1.ActionSpec) { s.Http.Headers[name] = value }
	}
	at := func(url string) func(*rotav1.ActionSpec) {
		return func(s *rotav1.ActionSpec) { s.Http.Url = url }
	}
	cases := []struct {
		name  string
		spoil func(*rotav1.ActionSpec)
		want  string // empty: nothing is wrong
	}{
		{"good", func(*rotav1.ActionSpec) {}, ""},
		{"only a URL", func(s *rotav1.ActionSpec) { s.Http = &rotav1.HttpCall{Url: "http://[::1]:80"} }, ""},
		{"the longest body", func(s *rotav1.ActionSpec) { s.Http.Body = make([]byte, 48<<10) }, ""},
		{"neither", func(s *rotav1.ActionSpec) { s.Http = nil }, ".command is required, unless http is given"},
		{"both", func(s *rotav1.ActionSpec) { s.Command = &rotav1.Command{} }, ".http is given beside command"},
		{"method", func(s *rotav1.ActionSpec) { s.Http.Method = "GET /" }, `.http.method is not a method: "GET /"`},
		{"tunnel", func(s *rotav1.ActionSpec) { s.Http.Method = "connect" }, ".http.method must not be CONNECT"},
		{"no URL", at(""), ".http.url is required"},
		{"not a URL", at("http://a b"), ".http.url is not a URL"},
		{"relative", at("/wake_up"), ".http.url must begin with http:// or https://"},
		{"file", at("file:///etc/passwd"), ".http.url must begin with http:// or https://"},
		{"no host", at("http://:80/"), ".http.url must name a host"},
		{"user", at("http://u:p@h/"), ".http.url must not hold a user"},
		{"long URL", at("http://h/" + strings.Repeat("x", 8<<10)), ".http.url must have at most 8192 bytes"},
		{"URL not UTF-8", at("http://h/\xff"), ".http.url must be valid UTF-8"},
		{"header without a name", header("", "x"), `.http.headers has the name ""`},
		{"header with a space", header("A B", "x"), `.http.headers has the name "A B"`},
		{"header of rota", header("rota-attempt", "1"), ".http.headers has the name \"rota-attempt\": what begins with Rota- is set by rota"},
		{"header of the connection", header("Transfer-Encoding", "chunked"), `.http.headers has the name "Transfer-Encoding", which the agent sets`},
		{"header that adds another", header("A", "x\r\nB: y"), `.http.headers["A"] must not contain control characters`},
		{"header not UTF-8", header("A", "\xff"), `.http.headers["A"] must be valid UTF-8`},
		{"header twice", header("Content-Type", "y"), `.http.headers has "content-type" twice`},
		{"many headers", func(s *rotav1.ActionSpec) {
			for i := range 65 {
				s.Http.Headers[fmt.Sprint("a", i)] = ""
			}
		}, ".http.headers must have at most 64 headers, has 68"},
		{"body", func(s *rotav1.ActionSpec) { s.Http.Body = make([]byte, 48<<10+1) }, ".http.body must have at most 49152 bytes, has 49153"},
		{"status", func(s *rotav1.ActionSpec) { s.Http.Accept[0] = 99 }, ".http.accept must have statuses from 100 to 599, has 99"},
		{"many statuses", func(s *rotav1.ActionSpec) { s.Http.Accept = make([]uint32, 17) }, ".http.accept must have at most 16 statuses, has 17"},
		{"size", func(s *rotav1.ActionSpec) {
			s.Http.Body, s.Http.Headers["a"] = make([]byte, 48<<10), strings.Repeat("x", 20<<10)
		}, ".http makes the action"},
		{"field of the future", func(s *rotav1.ActionSpec) {
			s.Http.ProtoReflect().SetUnknown([]byte{0xf8, 0x3f, 1}) // field 1023, varint 1
		}, " has fields that this server does not know"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			s := callSpec()
			c.spoil(s)
			err := checkSubmit(submitOf(s)).err()
			switch {
			case c.want == "" && err != nil:
				t.Errorf("refused: %v", err)
			case c.want != "" && (err == nil || !strings.HasPrefix(err.Error(), "actions[0]"+c.want)):
				t.Errorf("got  %v\nwant actions[0]%s", err, c.want)
			}
		})
	}
}

func TestEqualCallsAreEncodedEqually(t *testing.T) {
	first, err := encodeSpec(callSpec())
	if err != nil {
		t.Fatal(err)
	}
	for range 20 {
		if again, _ := encodeSpec(callSpec()); !bytes.Equal(first, again) {
			t.Fatal("two encodings of one call differ")
		}
	}
}
