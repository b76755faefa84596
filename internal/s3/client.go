package s3

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

const (
	// PartBytes is the size of the parts of a large object. Smaller objects are sent whole.
	PartBytes = 64 << 20
	// partsMax is how many parts an object may have (S3 API Reference, "Multipart upload limits").
	partsMax = 10_000
	// tries is how often a request is sent, in all, while the store does not answer it.
	tries      = 3
	retryPause = time.Second
	// answerBytesMax bounds what is read of an answer that is no object.
	answerBytesMax = 4 << 20
	// stallMax is how long a store may take to begin its answer, and how long no byte may pass in
	// either direction.
	stallMax = 2 * time.Minute
	// uploadHeader is metadata that tells an object of one multipart upload from all others.
	uploadHeader = "X-Amz-Meta-Rota-Upload"
)

var (
	// ErrNotFound: there is no object of that name.
	ErrNotFound = errors.New("there is no such object")
	// ErrTooLarge: an object has more bytes than the caller takes.
	ErrTooLarge = errors.New("the object is too large")
)

// Bucket is a bucket of a store.
type Bucket struct {
	// Endpoint is the URL of the store, without the bucket.
	Endpoint     *url.URL
	Region, Name string
	Credentials  Credentials
	HTTP         *http.Client
	// PartBytes is the size of parts; 0: PartBytes.
	PartBytes int64
	// StallMax is how long no byte may pass; 0: two minutes.
	StallMax time.Duration
}

// Parse splits s3://BUCKET/KEY; ok is false for what is no such address.
func Parse(address string) (bucket, key string, ok bool) {
	rest, ok := strings.CutPrefix(address, "s3://")
	if !ok {
		return "", "", false
	}
	bucket, key, _ = strings.Cut(rest, "/")
	return bucket, key, true
}

// shared is the client of all buckets, so that buckets of one store share its connections.
var shared = &http.Client{Transport: transport(), CheckRedirect: noRedirect}

func transport() *http.Transport {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.MaxIdleConnsPerHost = 16
	return t
}

// noRedirect: a signature is for one host only.
func noRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// call is one request of the protocol.
type call struct {
	method, key string
	query       url.Values
	// body is read again for each try, sum its SHA-256 in hex.
	body *io.SectionReader
	sum  string
	// upload is the value of uploadHeader; empty: none.
	upload string
}

// send makes a call and returns its answer, whose body must be closed. A store that does not answer,
// or says that it cannot at the moment, is asked again.
func (b *Bucket) send(ctx context.Context, c call) (resp *http.Response, err error) {
	for n := 1; ; n++ {
		resp, err = b.try(ctx, c)
		if err == nil && resp.StatusCode < 300 {
			return resp, nil
		}
		again := err != nil || resp.StatusCode >= 500 || resp.StatusCode == http.StatusTooManyRequests
		if err == nil {
			err = errorOf(c, resp)
		}
		if !again || n == tries {
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(time.Duration(n) * retryPause):
		}
	}
}

func (b *Bucket) try(ctx context.Context, c call) (*http.Response, error) {
	path := "/" + b.Name
	if c.key != "" {
		path += "/" + c.key
	}
	u := url.URL{Scheme: b.Endpoint.Scheme, Host: b.Endpoint.Host, Path: path, RawPath: escape(path, true), RawQuery: canonicalQuery(c.query)}
	w, ctx := newWatchdog(ctx, b.StallMax)
	r, err := http.NewRequestWithContext(ctx, c.method, u.String(), nil)
	if err != nil {
		w.end()
		return nil, err
	}
	sum := c.sum
	if c.body == nil {
		sum = hexSum(nil)
	} else {
		r.Body, r.ContentLength = io.NopCloser(w.sent(io.NewSectionReader(c.body, 0, c.body.Size()))), c.body.Size()
	}
	if c.upload != "" {
		r.Header.Set(uploadHeader, c.upload)
	}
	sign(r, sum, b.Region, b.Credentials, time.Now())
	resp, err := b.HTTP.Do(r)
	if err != nil {
		err = w.why(err)
		w.end()
		return nil, err
	}
	w.timer.Stop()
	resp.Body = &received{resp.Body, w}
	return resp, nil
}

// errorOf is what a store says of a call that failed. It closes the answer.
func errorOf(c call, resp *http.Response) error {
	defer resp.Body.Close()
	raw, _ := io.ReadAll(io.LimitReader(resp.Body, answerBytesMax))
	var said struct{ Code, Message string }
	_ = xml.Unmarshal(raw, &said) // else the status says it
	if resp.StatusCode == http.StatusNotFound && said.Code != "NoSuchBucket" && said.Code != "NoSuchUpload" {
		return fmt.Errorf("%w: %s", ErrNotFound, c.key)
	}
	hint := ""
	if c.method == http.MethodGet && said.Code == "AccessDenied" {
		hint = "; without the permission s3:ListBucket, a store answers like this for an object that is not there"
	}
	return fmt.Errorf("the object store refuses %s of %q: %s %s %s%s", c.method, c.key, resp.Status, said.Code, said.Message, hint)
}

// do makes a call and decodes its answer; into may be nil.
func (b *Bucket) do(ctx context.Context, c call, into any) (http.Header, error) {
	resp, err := b.send(ctx, c)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, answerBytesMax))
	if err == nil && into != nil {
		err = xml.Unmarshal(raw, into)
	}
	if err != nil {
		return nil, fmt.Errorf("the answer of the object store to %s of %q cannot be read: %w", c.method, c.key, err)
	}
	return resp.Header, nil
}

func bodyOf(from io.ReaderAt, at, size int64) (*io.SectionReader, string, error) {
	sum := sha256.New()
	if _, err := io.Copy(sum, io.NewSectionReader(from, at, size)); err != nil {
		return nil, "", err
	}
	return io.NewSectionReader(from, at, size), hex.EncodeToString(sum.Sum(nil)), nil
}

// Put stores so many bytes under a key. The object appears when it is whole: the store compares what
// came with the SHA-256 that the signature covers.
func (b *Bucket) Put(ctx context.Context, key string, from io.ReaderAt, size int64) error {
	part := b.PartBytes
	if part == 0 {
		part = PartBytes
	}
	part = max(part, (size+partsMax-1)/partsMax)
	if size > part {
		return b.putParts(ctx, key, from, size, part)
	}
	body, sum, err := bodyOf(from, 0, size)
	if err == nil {
		_, err = b.do(ctx, call{method: http.MethodPut, key: key, body: body, sum: sum}, nil)
	}
	return err
}

// piece is a part that the store has.
type piece struct {
	PartNumber int
	ETag       string
}

// putParts uploads an object in parts, and drops them if it cannot be completed.
func (b *Bucket) putParts(ctx context.Context, key string, from io.ReaderAt, size, part int64) (err error) {
	var begun struct{ UploadId string }
	mark := rand.Text()
	if _, err := b.do(ctx, call{method: http.MethodPost, key: key, query: url.Values{"uploads": {""}}, upload: mark}, &begun); err != nil {
		return err
	}
	if begun.UploadId == "" {
		return fmt.Errorf("the object store began no upload of %q: is the endpoint that of a store?", key)
	}
	upload := func(number string) url.Values {
		q := url.Values{"uploadId": {begun.UploadId}}
		if number != "" {
			q.Set("partNumber", number)
		}
		return q
	}
	defer func() {
		if err != nil {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
			defer cancel()
			_, e := b.do(ctx, call{method: http.MethodDelete, key: key, query: upload("")}, nil)
			err = errors.Join(err, e)
		}
	}()
	var all struct {
		XMLName xml.Name `xml:"CompleteMultipartUpload"`
		Part    []piece
	}
	for at := int64(0); at < size; at += part {
		body, sum, err := bodyOf(from, at, min(part, size-at))
		if err != nil {
			return err
		}
		number := len(all.Part) + 1
		header, err := b.do(ctx, call{method: http.MethodPut, key: key, query: upload(strconv.Itoa(number)), body: body, sum: sum}, nil)
		if err != nil {
			return err
		}
		all.Part = append(all.Part, piece{number, header.Get("ETag")})
	}
	list, err := xml.Marshal(all)
	if err != nil {
		return err
	}
	// An answer that was lost leaves open whether the object is there. The next try then finds no
	// upload any more.
	if err = b.complete(ctx, key, upload(""), list); err != nil && b.isOf(ctx, key, mark) {
		err = nil
	}
	return err
}

// complete makes an object of the parts that the store has.
func (b *Bucket) complete(ctx context.Context, key string, upload url.Values, list []byte) error {
	body, sum, err := bodyOf(bytes.NewReader(list), 0, int64(len(list)))
	if err != nil {
		return err
	}
	// The store may begin with 200 and say within the answer that it failed.
	var done struct {
		XMLName       xml.Name
		Code, Message string
	}
	if _, err := b.do(ctx, call{method: http.MethodPost, key: key, query: upload, body: body, sum: sum}, &done); err != nil {
		return err
	}
	if done.XMLName.Local != "CompleteMultipartUploadResult" {
		return fmt.Errorf("the object store cannot complete %q: %s %s", key, done.Code, done.Message)
	}
	return nil
}

// isOf reports whether an object was made by the upload with a mark.
func (b *Bucket) isOf(ctx context.Context, key, mark string) bool {
	header, err := b.do(ctx, call{method: http.MethodHead, key: key}, nil)
	return err == nil && header.Get(uploadHeader) == mark
}

// Get copies an object. What it has written before an error is of no use.
func (b *Bucket) Get(ctx context.Context, key string, to io.Writer) error {
	resp, err := b.send(ctx, call{method: http.MethodGet, key: key})
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, err = io.Copy(to, resp.Body)
	return err
}

// Read returns an object of at most limit bytes; into is used for it if it is large enough. An answer
// that breaks off is asked for again. It fails with ErrNotFound or ErrTooLarge.
func (b *Bucket) Read(ctx context.Context, key string, into []byte, limit int64) (data []byte, err error) {
	for n := 1; ; n++ {
		if data, err = b.readOnce(ctx, key, into, limit); err == nil || n == tries || !errors.Is(err, errBroken) {
			return data, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(time.Duration(n) * retryPause):
		}
	}
}

// errBroken: an answer began and did not end.
var errBroken = errors.New("the answer of the object store broke off")

func (b *Bucket) readOnce(ctx context.Context, key string, into []byte, limit int64) ([]byte, error) {
	resp, err := b.send(ctx, call{method: http.MethodGet, key: key})
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.ContentLength > limit {
		return nil, fmt.Errorf("%w: %q has %d bytes, more than %d", ErrTooLarge, key, resp.ContentLength, limit)
	}
	to := bytes.NewBuffer(into[:0])
	_, err = io.Copy(struct{ io.Writer }{to}, io.LimitReader(resp.Body, limit+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: %q: %w", errBroken, key, err)
	case int64(to.Len()) > limit:
		return nil, fmt.Errorf("%w: %q has more than %d bytes", ErrTooLarge, key, limit)
	}
	return to.Bytes(), nil
}

// List returns the keys that begin with a prefix, in the order of their bytes.
func (b *Bucket) List(ctx context.Context, prefix string) (keys []string, err error) {
	q := url.Values{"list-type": {"2"}, "prefix": {prefix}}
	for {
		var page struct {
			Contents              []struct{ Key string }
			IsTruncated           bool
			NextContinuationToken string
		}
		if _, err := b.do(ctx, call{method: http.MethodGet, query: q}, &page); err != nil {
			return nil, err
		}
		for _, o := range page.Contents {
			keys = append(keys, o.Key)
		}
		if !page.IsTruncated {
			return keys, nil
		}
		if next := page.NextContinuationToken; next == "" || next == q.Get("continuation-token") {
			return nil, fmt.Errorf("the object store does not say how the list of %q goes on: does it know ListObjectsV2?", prefix)
		}
		q.Set("continuation-token", page.NextContinuationToken)
	}
}

// Delete removes an object. One that is not there is no error.
func (b *Bucket) Delete(ctx context.Context, key string) error {
	_, err := b.do(ctx, call{method: http.MethodDelete, key: key}, nil)
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	return err
}
