package e2b

import (
	"errors"
	"io"
	"math"
	"mime"
	"mime/multipart"
	"net/http"
	"strings"
)

const (
	// partsMax bounds the parts of a form.
	partsMax = 1000
	// partHeaderMax bounds what is read between the content of two files.
	partHeaderMax = 64 << 10
)

var errPartHeader = errors.New("what is between its files is too long")

// formBody is the body of a form. It yields only so much outside of the content of files: the
// standard library would keep 10 MiB of a header, and skip without end what nobody wants.
type formBody struct {
	io.Reader
	left int64
}

func (b *formBody) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, errPartHeader
	}
	n, err := b.Reader.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	return n, err
}

// receiveForm stores the files of a form, each at the path that it names, or one at a path.
func (u *upload) receiveForm(r *http.Request, to string) ([]written, error) {
	body := &formBody{Reader: r.Body}
	r.Body = io.NopCloser(body)
	parts, err := r.MultipartReader()
	if err != nil {
		return nil, invalid("the form cannot be read: %v", err)
	}
	var all []written
	for n := 0; ; n++ {
		body.left = partHeaderMax
		part, err := parts.NextPart()
		switch {
		case err == io.EOF && len(all) == 0:
			return nil, invalid("the form has no file")
		case err == io.EOF:
			return all, nil
		case err != nil:
			return nil, cutOff("the form", err)
		case n == partsMax, len(all) > 0 && to != "":
			return nil, invalid("the form has too many files: %d at most, and only one to a path in the query", partsMax)
		case part.FormName() != "file":
			continue
		}
		name := to
		if name == "" {
			name = nameOf(part)
		}
		body.left = math.MaxInt64
		done, err := u.store(name, part)
		if err != nil {
			return nil, err
		}
		all = append(all, done)
	}
}

// nameOf is the path that a part of a form names. The standard library's FileName leaves out the
// directories; and what browsers and the fetch of JavaScript escape, it leaves as it is.
func nameOf(part *multipart.Part) string {
	_, params, _ := mime.ParseMediaType(part.Header.Get("Content-Disposition"))
	return strings.NewReplacer("%22", `"`, "%0D", "\r", "%0A", "\n").Replace(params["filename"])
}
