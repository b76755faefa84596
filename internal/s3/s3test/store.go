package s3test

import (
	"crypto/hmac"
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
	"strconv"
	"strings"
	"sync"
	"testing"
)

// AccessKey and Secret are the credentials that a Store takes: those of the examples in the S3 API
// Reference. Session and Region belong to them.
const (
	AccessKey = "AKIAIOSFODNN7EXAMPLE"
	Secret    = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
	Session   = "session"
	Region    = "eu-test-1"
)

// Store is the server. It has the bucket "bucket". Mu guards what a test changes while requests come.
type Store struct {
	t  testing.TB
	Mu sync.Mutex
	// Objects are by key, with a slash before it.
	Objects map[string][]byte
	// Parts are those of uploads that are not complete.
	Parts map[string][]byte
	// Refuse is how many of the next requests are answered 503.
	Refuse int
	// FailAt is the part number that is refused.
	FailAt string
	// OtherKeys: requests with another access key are answered 403, and do not fail the test. Refused
	// counts them.
	OtherKeys bool
	Refused   int
	// Before, if not nil, is asked about each request: an answer with a status other than 0 is given
	// in place of what the store would say.
	Before func(r *http.Request) (status int)
	// After, if not nil, is asked about each request that was carried out: true breaks the connection
	// off in place of the answer.
	After func(r *http.Request) (lost bool)
	// CutAfter, if not 0, is after how many bytes the next answers that are objects break off; Cuts is
	// how many of them do.
	CutAfter, Cuts int
	// Pages counts the answers that are lists. Puts counts the objects that came whole.
	Pages, Puts int

	// mark is that of the upload that was begun last, open says that it goes on. marks are those of
	// objects, by key.
	mark  string
	open  bool
	marks map[string]string
}

// markHeader is metadata that tells which upload made an object.
const markHeader = "X-Amz-Meta-Rota-Upload"

// New starts a store that ends with the test, and sets the environment by which package s3 finds it.
func New(t testing.TB) *Store {
	s := &Store{t: t, Objects: map[string][]byte{}, Parts: map[string][]byte{}, marks: map[string]string{}}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	for name, value := range map[string]string{
		"AWS_ENDPOINT_URL_S3": server.URL, "AWS_ACCESS_KEY_ID": AccessKey, "AWS_SECRET_ACCESS_KEY": Secret,
		"AWS_SESSION_TOKEN": Session, "AWS_REGION": Region,
	} {
		t.Setenv(name, value)
	}
	return s
}

// verify computes the signature of a request from the bytes on the wire.
func (s *Store) verify(r *http.Request, body []byte) error {
	raw, query, _ := strings.Cut(r.RequestURI, "?")
	var scope, signed, signature string
	for _, part := range strings.Split(strings.TrimPrefix(r.Header.Get("Authorization"), "AWS4-HMAC-SHA256 "), ",") {
		k, v, _ := strings.Cut(part, "=")
		switch k {
		case "Credential":
			scope = strings.TrimPrefix(v, AccessKey+"/")
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
	h := []byte("AWS4" + Secret)
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

func (s *Store) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	body, err := io.ReadAll(r.Body)
	other := s.OtherKeys && !strings.Contains(r.Header.Get("Authorization"), " Credential="+AccessKey+"/")
	if err == nil && !other {
		err = s.verify(r, body)
	}
	fail := func(status int, code string) {
		w.WriteHeader(status)
		fmt.Fprintf(w, "<Error><Code>%s</Code><Message>of the test</Message></Error>", code)
	}
	key, q := strings.TrimPrefix(r.URL.Path, "/bucket"), r.URL.Query()
	object, there := s.Objects[key]
	status := 0
	if err == nil && s.Before != nil {
		status = s.Before(r)
	}
	switch {
	case err != nil:
		s.t.Error(err)
		fail(http.StatusForbidden, "SignatureDoesNotMatch")
	case other:
		s.Refused++
		fail(http.StatusForbidden, "InvalidAccessKeyId")
	case status != 0:
		fail(status, "Test")
	case s.Refuse > 0:
		s.Refuse--
		fail(http.StatusServiceUnavailable, "SlowDown")
	case q.Has("list-type"):
		s.list(w, q)
	case q.Has("uploads"):
		s.mark, s.open = r.Header.Get(markHeader), true
		fmt.Fprint(w, "<InitiateMultipartUploadResult><UploadId>an upload/1</UploadId></InitiateMultipartUploadResult>")
	case q.Has("uploadId") && !s.open:
		fail(http.StatusNotFound, "NoSuchUpload")
	case q.Get("uploadId") != "" && q.Get("uploadId") != "an upload/1", q.Has("partNumber") && q.Get("partNumber") == s.FailAt:
		fail(http.StatusBadRequest, "NoSuchUpload")
	case q.Has("partNumber"):
		s.Parts[q.Get("partNumber")] = body
		w.Header().Set("ETag", `"`+q.Get("partNumber")+`"`)
	case q.Has("uploadId") && r.Method == http.MethodDelete:
		s.open = false
		clear(s.Parts)
	case q.Has("uploadId"):
		s.complete(w, key, body)
	case r.Method == http.MethodPut:
		s.Objects[key] = body
		delete(s.marks, key)
		s.Puts++
	case !there:
		fail(http.StatusNotFound, "NoSuchKey")
	case r.Method == http.MethodDelete:
		delete(s.Objects, key)
	default:
		w.Header().Set(markHeader, s.marks[key])
		s.answer(w, object)
	}
	if s.After != nil && s.After(r) {
		panic(http.ErrAbortHandler)
	}
}

// answer writes an object, or a part of it if the answer is to break off.
func (s *Store) answer(w http.ResponseWriter, object []byte) {
	w.Header().Set("Content-Length", strconv.Itoa(len(object)))
	if s.Cuts > 0 && len(object) > s.CutAfter {
		s.Cuts--
		object = object[:s.CutAfter]
	}
	_, _ = w.Write(object)
}

// complete makes an object of the parts of an upload.
func (s *Store) complete(w io.Writer, key string, body []byte) {
	var all struct {
		Part []struct {
			PartNumber int
			ETag       string
		}
	}
	if err := xml.Unmarshal(body, &all); err != nil {
		s.t.Error(err)
	}
	s.Objects[key], s.marks[key], s.open = nil, s.mark, false
	for i, p := range all.Part {
		if p.ETag != fmt.Sprintf("%q", fmt.Sprint(i+1)) || p.PartNumber != i+1 {
			s.t.Errorf("part %d is %+v", i+1, p)
		}
		s.Objects[key] = append(s.Objects[key], s.Parts[fmt.Sprint(p.PartNumber)]...)
	}
	clear(s.Parts)
	fmt.Fprint(w, "<CompleteMultipartUploadResult/>")
}

// list answers two keys at a time.
func (s *Store) list(w io.Writer, q url.Values) {
	var keys []string
	for key := range s.Objects {
		if key = key[1:]; strings.HasPrefix(key, q.Get("prefix")) && key > q.Get("continuation-token") {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	s.Pages++
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
