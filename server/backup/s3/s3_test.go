package s3

import (
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

var example = Credentials{AccessKey: "AKIAIOSFODNN7EXAMPLE", Secret: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"}

// TestSignaturesOfTheSpecification: the examples of the S3 API Reference, "Signature Calculations for
// the Authorization Header".
func TestSignaturesOfTheSpecification(t *testing.T) {
	at := time.Date(2013, 5, 24, 0, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		method, path, query, body string
		header                    map[string]string
		want                      string
	}{
		{"GET", "/test.txt", "", "", map[string]string{"Range": "bytes=0-9"}, "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"},
		{"PUT", "/test$file.text", "", "Welcome to Amazon S3.", map[string]string{"Date": "Fri, 24 May 2013 00:00:00 GMT", "X-Amz-Storage-Class": "REDUCED_REDUNDANCY"},
			"98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd"},
		{"GET", "/", "lifecycle", "", nil, "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"},
		{"GET", "/", "max-keys=2&prefix=J", "", nil, "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"},
	} {
		r := &http.Request{Method: c.method, Header: http.Header{}, URL: &url.URL{Scheme: "https", Host: "examplebucket.s3.amazonaws.com", Path: c.path, RawQuery: c.query}}
		for k, v := range c.header {
			r.Header.Set(k, v)
		}
		sign(r, hexSum([]byte(c.body)), "us-east-1", example, at)
		if got := r.Header.Get("Authorization"); !strings.HasSuffix(got, "Signature="+c.want) {
			t.Errorf("%s %s?%s: %s, want %s", c.method, c.path, c.query, got, c.want)
		}
	}
}

// store is a server that speaks as much of S3 as is needed. It verifies each signature by what it
// received, with nothing of the package.
type store struct {
	t       *testing.T
	mu      sync.Mutex
	objects map[string][]byte
	parts   map[string][]byte // of uploads that are not complete
	refuse  int               // so many requests are answered 503
	failAt  string            // part number that is refused
	pages   int
}

func newStore(t *testing.T) (*store, *Bucket) {
	s := &store{t: t, objects: map[string][]byte{}, parts: map[string][]byte{}}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	t.Setenv("AWS_ENDPOINT_URL_S3", server.URL)
	t.Setenv("AWS_ACCESS_KEY_ID", example.AccessKey)
	t.Setenv("AWS_SECRET_ACCESS_KEY", example.Secret)
	t.Setenv("AWS_SESSION_TOKEN", "session")
	t.Setenv("AWS_REGION", "eu-test-1")
	b, err := FromEnvironment("bucket")
	if err != nil {
		t.Fatal(err)
	}
	return s, b
}

// verify computes the signature of a request from the bytes on the wire.
func (s *store) verify(r *http.Request, body []byte) error {
	raw, query, _ := strings.Cut(r.RequestURI, "?")
	var scope, signed, signature string
	for _, part := range strings.Split(strings.TrimPrefix(r.Header.Get("Authorization"), "AWS4-HMAC-SHA256 "), ",") {
		k, v, _ := strings.Cut(part, "=")
		switch k {
		case "Credential":
			scope = strings.TrimPrefix(v, example.AccessKey+"/")
		case "SignedHeaders":
			signed = v
		case "Signature":
			signature = v
		}
	}
	sum := sha256.Sum256(body)
	if r.Header.Get("X-Amz-Content-Sha256") != hex.EncodeToString(sum[:]) {
		return errors.New("the body is not what was signed")
	}
	params := strings.Split(query, "&")
	slices.Sort(params)
	text := r.Method + "\n" + raw + "\n" + strings.Join(params, "&") + "\n"
	for _, name := range strings.Split(signed, ";") {
		value := r.Header.Get(name)
		if name == "host" {
			value = r.Host
		}
		text += name + ":" + value + "\n"
	}
	for _, name := range []string{"host", "x-amz-content-sha256", "x-amz-date", "x-amz-security-token"} {
		if !slices.Contains(strings.Split(signed, ";"), name) {
			return fmt.Errorf("%s is not signed", name)
		}
	}
	text += "\n" + signed + "\n" + r.Header.Get("X-Amz-Content-Sha256")
	canonical := sha256.Sum256([]byte(text))
	h := []byte("AWS4" + example.Secret)
	for _, part := range append(strings.Split(scope, "/"), "AWS4-HMAC-SHA256\n"+r.Header.Get("X-Amz-Date")+"\n"+scope+"\n"+hex.EncodeToString(canonical[:])) {
		m := hmac.New(sha256.New, h)
		m.Write([]byte(part))
		h = m.Sum(nil)
	}
	if !strings.HasSuffix(scope, "/eu-test-1/s3/aws4_request") || hex.EncodeToString(h) != signature {
		return errors.New("the signature is wrong")
	}
	return nil
}

func (s *store) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	body, err := io.ReadAll(r.Body)
	if err == nil {
		err = s.verify(r, body)
	}
	fail := func(status int, code string) {
		w.WriteHeader(status)
		fmt.Fprintf(w, "<Error><Code>%s</Code><Message>of the test</Message></Error>", code)
	}
	key, q := strings.TrimPrefix(r.URL.Path, "/bucket"), r.URL.Query()
	object, there := s.objects[key]
	switch {
	case err != nil:
		s.t.Error(err)
		fail(http.StatusForbidden, "SignatureDoesNotMatch")
	case s.refuse > 0:
		s.refuse--
		fail(http.StatusServiceUnavailable, "SlowDown")
	case q.Has("list-type"):
		s.list(w, q)
	case q.Has("uploads"):
		fmt.Fprint(w, "<InitiateMultipartUploadResult><UploadId>an upload/1</UploadId></InitiateMultipartUploadResult>")
	case q.Get("uploadId") != "" && q.Get("uploadId") != "an upload/1", q.Has("partNumber") && q.Get("partNumber") == s.failAt:
		fail(http.StatusBadRequest, "NoSuchUpload")
	case q.Has("partNumber"):
		s.parts[q.Get("partNumber")] = body
		w.Header().Set("ETag", `"`+q.Get("partNumber")+`"`)
	case q.Has("uploadId") && r.Method == http.MethodDelete:
		clear(s.parts)
	case q.Has("uploadId"):
		s.complete(w, key, body)
	case r.Method == http.MethodPut:
		s.objects[key] = body
	case !there:
		fail(http.StatusNotFound, "NoSuchKey")
	case r.Method == http.MethodDelete:
		delete(s.objects, key)
	default:
		_, _ = w.Write(object)
	}
}

func (s *store) complete(w io.Writer, key string, body []byte) {
	var all struct{ Part []piece }
	if err := xml.Unmarshal(body, &all); err != nil {
		s.t.Error(err)
	}
	for i, p := range all.Part {
		if p.ETag != fmt.Sprintf("%q", fmt.Sprint(i+1)) || p.PartNumber != i+1 {
			s.t.Errorf("part %d is %+v", i+1, p)
		}
		s.objects[key] = append(s.objects[key], s.parts[fmt.Sprint(p.PartNumber)]...)
	}
	clear(s.parts)
	fmt.Fprint(w, "<CompleteMultipartUploadResult/>")
}

// list answers two keys at a time.
func (s *store) list(w io.Writer, q url.Values) {
	var keys []string
	for key := range s.objects {
		if key = key[1:]; strings.HasPrefix(key, q.Get("prefix")) && key > q.Get("continuation-token") {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	s.pages++
	fmt.Fprint(w, "<ListBucketResult>")
	for _, key := range keys[:min(2, len(keys))] {
		fmt.Fprint(w, "<Contents><Key>")
		_ = xml.EscapeText(w, []byte(key))
		fmt.Fprint(w, "</Key></Contents>")
	}
	if len(keys) > 2 {
		fmt.Fprint(w, "<IsTruncated>true</IsTruncated><NextContinuationToken>")
		_ = xml.EscapeText(w, []byte(keys[1]))
		fmt.Fprint(w, "</NextContinuationToken>")
	}
	fmt.Fprint(w, "</ListBucketResult>")
}

// TestObjects: whole and in parts, under odd names, what was put is got, listed and deleted.
func TestObjects(t *testing.T) {
	s, b := newStore(t)
	b.PartBytes = 1000
	want := map[string][]byte{}
	for i, key := range []string{"a/small", "a/just", "a/large one+$ü=&?", "b/empty", "a/z"} {
		data := make([]byte, []int{10, 1000, 4321, 0, 1}[i])
		_, _ = rand.Read(data)
		want[key] = data
		if err := b.Put(t.Context(), key, bytes.NewReader(data), int64(len(data))); err != nil {
			t.Fatal(err)
		}
	}
	for key, data := range want {
		var got bytes.Buffer
		if err := b.Get(t.Context(), key, &got); err != nil || !bytes.Equal(got.Bytes(), data) {
			t.Errorf("%s: %d bytes of %d, %v", key, got.Len(), len(data), err)
		}
	}
	keys, err := b.List(t.Context(), "a/")
	if err != nil || !slices.Equal(keys, []string{"a/just", "a/large one+$ü=&?", "a/small", "a/z"}) || s.pages != 2 {
		t.Errorf("the list is %q in %d pages, %v", keys, s.pages, err)
	}
	for range 2 {
		if err := b.Delete(t.Context(), "a/small"); err != nil {
			t.Error(err)
		}
	}
	if err := b.Get(t.Context(), "a/small", io.Discard); !errors.Is(err, ErrNotFound) {
		t.Errorf("an object that is gone: %v", err)
	}
}

// TestStoresThatFail: a store that is busy is asked again, and a part that is refused leaves nothing.
func TestStoresThatFail(t *testing.T) {
	s, b := newStore(t)
	b.PartBytes = 10
	s.refuse = 1
	if err := b.Put(t.Context(), "k", strings.NewReader("text"), 4); err != nil || string(s.objects["/k"]) != "text" {
		t.Errorf("a store that was busy once: %v", err)
	}
	s.failAt = "2"
	err := b.Put(t.Context(), "k", strings.NewReader("a text of many parts"), 20)
	if err == nil || !strings.Contains(err.Error(), "NoSuchUpload of the test") || string(s.objects["/k"]) != "text" || len(s.parts) != 0 {
		t.Errorf("a part that is refused: %v, %q, %d parts left", err, s.objects["/k"], len(s.parts))
	}
	for name, value := range map[string]string{"AWS_ENDPOINT_URL_S3": "http://192.0.2.1:9000", "AWS_SECRET_ACCESS_KEY": ""} {
		t.Setenv(name, value)
		if _, err := FromEnvironment("bucket"); err == nil || !strings.Contains(err.Error(), "AWS_") {
			t.Errorf("%s=%q: %v", name, value, err)
		}
	}
}
