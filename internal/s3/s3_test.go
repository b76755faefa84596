package s3

import (
	"bytes"
	"crypto/rand"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"rota/internal/s3/s3test"
)

var example = Credentials{AccessKey: s3test.AccessKey, Secret: s3test.Secret}

func newBucket(t *testing.T) (*s3test.Store, *Bucket) {
	s := s3test.New(t)
	b, err := FromEnvironment("bucket")
	if err != nil {
		t.Fatal(err)
	}
	return s, b
}

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

// TestObjects: whole and in parts, under odd names, what was put is got, listed and deleted.
func TestObjects(t *testing.T) {
	s, b := newBucket(t)
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
	if err != nil || !slices.Equal(keys, []string{"a/just", "a/large one+$ü=&?", "a/small", "a/z"}) || s.Pages != 2 {
		t.Errorf("the list is %q in %d pages, %v", keys, s.Pages, err)
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
	s, b := newBucket(t)
	b.PartBytes = 10
	s.Refuse = 1
	if err := b.Put(t.Context(), "k", strings.NewReader("text"), 4); err != nil || string(s.Objects["/k"]) != "text" {
		t.Errorf("a store that was busy once: %v", err)
	}
	s.FailAt = "2"
	err := b.Put(t.Context(), "k", strings.NewReader("a text of many parts"), 20)
	if err == nil || !strings.Contains(err.Error(), "NoSuchUpload of the test") || string(s.Objects["/k"]) != "text" || len(s.Parts) != 0 {
		t.Errorf("a part that is refused: %v, %q, %d parts left", err, s.Objects["/k"], len(s.Parts))
	}
	for name, value := range map[string]string{"AWS_ENDPOINT_URL_S3": "http://192.0.2.1:9000", "AWS_SECRET_ACCESS_KEY": ""} {
		t.Setenv(name, value)
		if _, err := FromEnvironment("bucket"); err == nil || !strings.Contains(err.Error(), "AWS_") {
			t.Errorf("%s=%q: %v", name, value, err)
		}
	}
}

// TestACompletionWithoutAnAnswer: an upload whose last answer is lost has succeeded, and is told from an
// older object of the same name.
func TestACompletionWithoutAnAnswer(t *testing.T) {
	s, b := newBucket(t)
	b.PartBytes = 10
	const text = "a text of many parts"
	completes := func(r *http.Request) bool {
		return r.Method == http.MethodPost && r.URL.Query().Has("uploadId")
	}
	s.Objects["/k"], s.After = []byte("another text, so long"), completes
	if err := b.Put(t.Context(), "k", strings.NewReader(text), int64(len(text))); err != nil || string(s.Objects["/k"]) != text {
		t.Errorf("a completion whose answer was lost: %v, and the object is %q", err, s.Objects["/k"])
	}
	s.After, s.Before = nil, func(r *http.Request) int {
		if completes(r) {
			return http.StatusForbidden
		}
		return 0
	}
	if err := b.Put(t.Context(), "k", strings.NewReader("A TEXT OF MANY PARTS"), int64(len(text))); err == nil || string(s.Objects["/k"]) != text {
		t.Errorf("a completion that was refused: %v, and the object is %q", err, s.Objects["/k"])
	}
}

// TestAStoreThatStalls: a store that takes or gives no byte any more is given up.
func TestAStoreThatStalls(t *testing.T) {
	stop := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			w.Header().Set("Content-Length", "8")
			_, _ = w.Write([]byte("text"))
			_ = http.NewResponseController(w).Flush()
		}
		<-stop
	}))
	defer server.Close()
	defer close(stop)
	u, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	b := &Bucket{Endpoint: u, Region: s3test.Region, Name: "bucket", Credentials: example, HTTP: shared, StallMax: 50 * time.Millisecond}
	if err := b.Get(t.Context(), "k", io.Discard); !errors.Is(err, errStalled) {
		t.Errorf("a body that stalls: %v", err)
	}
	const large = 32 << 20 // more than the sockets take
	if err := b.Put(t.Context(), "k", bytes.NewReader(make([]byte, large)), large); !errors.Is(err, errStalled) {
		t.Errorf("a request that stalls: %v", err)
	}
}

// TestAListThatDoesNotGoOn: a part of a list is not taken for all of it.
func TestAListThatDoesNotGoOn(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "<ListBucketResult><Contents><Key>a</Key></Contents><IsTruncated>true</IsTruncated><NextMarker>a</NextMarker></ListBucketResult>")
	}))
	defer server.Close()
	u, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	b := &Bucket{Endpoint: u, Region: s3test.Region, Name: "bucket", Credentials: example, HTTP: shared}
	if keys, err := b.List(t.Context(), ""); err == nil {
		t.Errorf("a list that was cut: %q", keys)
	}
}

// TestAnswersThatBreakOff: an object is asked for again, and one that is larger than expected is refused.
func TestAnswersThatBreakOff(t *testing.T) {
	s, b := newBucket(t)
	want := bytes.Repeat([]byte("text"), 1000)
	s.Objects["/k"], s.CutAfter, s.Cuts = want, 100, 1
	into := make([]byte, len(want))
	got, err := b.Read(t.Context(), "k", into, int64(len(into)))
	if err != nil || !bytes.Equal(got, want) || &got[0] != &into[0] {
		t.Errorf("%d bytes of %d, %v", len(got), len(want), err)
	}
	if _, err := b.Read(t.Context(), "k", into, 100); !errors.Is(err, ErrTooLarge) {
		t.Errorf("an object that is too large: %v", err)
	}
	if _, err := b.Read(t.Context(), "other", into, 100); !errors.Is(err, ErrNotFound) {
		t.Errorf("an object that is not there: %v", err)
	}
}

// TestCredentialsOfAFile: the profile that the environment names is read, if the environment has none.
func TestCredentialsOfAFile(t *testing.T) {
	s, _ := newBucket(t)
	s.Objects["/k"] = nil
	path := filepath.Join(t.TempDir(), "credentials")
	text := "# keys\n[default]\naws_access_key_id = other\naws_secret_access_key=other\n\n[rota]\naws_access_key_id = " +
		s3test.AccessKey + "\naws_secret_access_key = " + s3test.Secret + "\naws_session_token = " + s3test.Session + "\n[empty]\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"} {
		t.Setenv(name, "")
	}
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", path)
	t.Setenv("AWS_PROFILE", "rota")
	b, err := FromEnvironment("bucket")
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Get(t.Context(), "k", io.Discard); err != nil {
		t.Error(err)
	}
	for name, value := range map[string]string{"AWS_PROFILE": "empty", "AWS_SHARED_CREDENTIALS_FILE": path + ".not"} {
		t.Setenv(name, value)
		if _, err := FromEnvironment("bucket"); err == nil || !strings.Contains(err.Error(), "AWS_SHARED_CREDENTIALS_FILE") {
			t.Errorf("%s=%q: %v", name, value, err)
		}
	}
}

// TestAReadThatIsDenied: the error of a read names the permission without which a store does not say that
// an object is missing; that of a write does not.
func TestAReadThatIsDenied(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusForbidden)
		_, _ = io.WriteString(w, "<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>")
	}))
	defer server.Close()
	u, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	b := &Bucket{Endpoint: u, Region: s3test.Region, Name: "bucket", Credentials: example, HTTP: shared}
	if err := b.Get(t.Context(), "k", io.Discard); err == nil || !strings.Contains(err.Error(), "s3:ListBucket") {
		t.Errorf("a read: %v", err)
	}
	if err := b.Put(t.Context(), "k", strings.NewReader("text"), 4); err == nil || strings.Contains(err.Error(), "s3:ListBucket") {
		t.Errorf("a write: %v", err)
	}
}
