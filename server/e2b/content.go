package e2b

import (
	"compress/gzip"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"path"
	"strconv"
	"strings"

	"connectrpc.com/connect"

	rotav1 "rota/api/gen/rota/v1"
)

const (
	// chunkBytes is what one call reads or writes of a file.
	chunkBytes = 1 << 20
	// partsMax bounds the files of one upload.
	partsMax = 1000
)

// written is what a program is told of a file that it uploaded.
type written struct {
	Path string `json:"path"`
	Name string `json:"name"`
	Type string `json:"type"`
}

// download answers with the content of a file.
func (e *E2B) download(w http.ResponseWriter, r *http.Request) {
	s := sandboxIn(r.Context())
	relative, err := inside(r.URL.Query().Get("path"))
	if err != nil {
		failWith(w, err)
		return
	}
	read := func(at uint64) (*rotav1.ReadFileResponse, error) {
		return s.files.ReadFile(r.Context(), &rotav1.ReadFileRequest{TrajectoryId: s.id, Path: relative, Offset: at, BytesMax: chunkBytes, AllowStale: true})
	}
	resp, err := read(0)
	if err != nil {
		failWith(w, err)
		return
	}
	size := resp.SizeBytes
	h := w.Header()
	h.Set("Content-Type", "application/octet-stream")
	h.Set("Content-Length", strconv.FormatUint(size, 10))
	h.Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": path.Base(relative)}))
	for at := uint64(0); ; {
		data := resp.Data[:min(uint64(len(resp.Data)), size-at)]
		if _, err := w.Write(data); err != nil {
			return // its reader is gone
		}
		if at += uint64(len(data)); at == size {
			return
		}
		if resp, err = read(at); err != nil || len(resp.Data) == 0 {
			panic(http.ErrAbortHandler) // the file has become shorter: its reader must not take this for all of it
		}
	}
}

// upload writes files: the body to a path, or each part of a form to the path that it names.
func (e *E2B) upload(w http.ResponseWriter, r *http.Request) {
	done, err := e.receive(sandboxIn(r.Context()), r)
	if err != nil {
		failWith(w, err)
		return
	}
	answer(w, http.StatusOK, done)
}

func (e *E2B) receive(s *sandbox, r *http.Request) ([]written, error) {
	to := r.URL.Query().Get("path")
	if kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); kind != "multipart/form-data" {
		if kind != "application/octet-stream" {
			return nil, invalid("the content type must be multipart/form-data or application/octet-stream")
		}
		body, err := unpacked(r)
		if err != nil {
			return nil, err
		}
		done, err := e.store(r, s, to, body)
		return []written{done}, err
	}
	parts, err := r.MultipartReader()
	if err != nil {
		return nil, invalid("the form cannot be read: %v", err)
	}
	var all []written
	for {
		part, err := parts.NextPart()
		switch {
		case err == io.EOF && len(all) == 0:
			return nil, invalid("the form has no file")
		case err == io.EOF:
			return all, nil
		case err != nil:
			return nil, invalid("the form cannot be read: %v", err)
		case part.FormName() != "file":
			continue
		case len(all) == partsMax, len(all) > 0 && to != "":
			return nil, invalid("the form has too many files: %d at most, and only one to a path in the query", partsMax)
		}
		name := to
		if name == "" {
			name = nameOf(part)
		}
		done, err := e.store(r, s, name, part)
		if err != nil {
			return nil, err
		}
		all = append(all, done)
	}
}

// unpacked is the body of a request without its compression.
func unpacked(r *http.Request) (io.Reader, error) {
	switch encoding := r.Header.Get("Content-Encoding"); encoding {
	case "", "identity":
		return r.Body, nil
	case "gzip":
		body, err := gzip.NewReader(r.Body)
		if err != nil {
			return nil, invalid("the body is not what gzip writes: %v", err)
		}
		return body, nil
	default:
		return nil, invalid("the content encoding %.40q is not known here: use gzip, or none", encoding)
	}
}

// nameOf is the path that a part of a form names. The standard library's FileName leaves out the
// directories; and what browsers and the fetch of JavaScript escape, it leaves as it is.
func nameOf(part *multipart.Part) string {
	_, params, _ := mime.ParseMediaType(part.Header.Get("Content-Disposition"))
	return strings.NewReplacer("%22", `"`, "%0D", "\r", "%0A", "\n").Replace(params["filename"])
}

// store writes a file as it arrives. What was written stays if the rest does not come.
func (e *E2B) store(r *http.Request, s *sandbox, to string, body io.Reader) (written, error) {
	relative, err := inside(to)
	if err != nil {
		return written{}, err
	}
	if relative == "" {
		return written{}, invalid("%.200q is a directory: name a file", to)
	}
	buffer := make([]byte, chunkBytes)
	for at := uint64(0); ; {
		n, err := fill(body, buffer)
		last := err == io.EOF
		if err != nil && !last {
			return written{}, invalid("the content of %.200q ends in the middle: %v", to, err)
		}
		if at+uint64(n) > uint64(e.uploadMax) {
			return written{}, connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("%.200q has more than %d bytes, which is the limit", to, e.uploadMax))
		}
		if n > 0 || at == 0 {
			_, err := s.files.WriteFile(r.Context(), &rotav1.WriteFileRequest{
				TrajectoryId: s.id, Path: relative, Offset: at, Data: buffer[:n], Truncate: true, Parents: at == 0,
			})
			if err != nil {
				return written{}, err
			}
		}
		if at += uint64(n); last {
			return written{Path: outside(relative), Name: path.Base(relative), Type: "file"}, nil
		}
	}
}

// fill reads until a buffer is full, and returns the reader's own error. io.ReadFull says
// "unexpected end" of a short read, as bodies do that were cut off.
func fill(body io.Reader, buffer []byte) (n int, err error) {
	for n < len(buffer) && err == nil {
		var more int
		more, err = body.Read(buffer[n:])
		n += more
	}
	return n, err
}
