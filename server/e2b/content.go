package e2b

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"path"
	"strconv"
	"time"

	"connectrpc.com/connect"

	rotav1 "rota/api/gen/rota/v1"
)

const (
	// chunkBytes is what one call reads or writes of a file.
	chunkBytes = 1 << 20
	// transfersMax bounds the files that are uploaded and downloaded at once.
	transfersMax = 256
	// idleMax is how long the other side may send nothing.
	idleMax = 30 * time.Second
	// refusedWait is how long the rest of an upload that is refused may take.
	refusedWait = 5 * time.Second
)

// written is what a program is told of a file that it uploaded.
type written struct {
	Path string `json:"path"`
	Name string `json:"name"`
	Type string `json:"type"`
}

// download answers with the content of a file, or with a part of it.
func (e *E2B) download(w http.ResponseWriter, r *http.Request) {
	s := sandboxIn(r.Context())
	relative, err := inside(r.URL.Query().Get("path"))
	if err != nil {
		failFile(w, err)
		return
	}
	giveBack, err := e.transfers.wait(r.Context(), s.namespace)
	if err != nil {
		failFile(w, err)
		return
	}
	defer giveBack()
	read := func(at, most uint64) (*rotav1.ReadFileResponse, error) {
		return s.files.ReadFile(r.Context(), &rotav1.ReadFileRequest{TrajectoryId: s.id, Path: relative, Offset: at, BytesMax: uint32(most), AllowStale: true})
	}
	probe := uint64(chunkBytes)
	if r.Method == http.MethodHead || r.Header.Get("Range") != "" {
		probe = 1 // it says how large the file is
	}
	resp, err := read(0, probe)
	if err != nil {
		failFile(w, err)
		return
	}
	size := resp.SizeBytes
	at, end, status := uint64(0), size, http.StatusOK
	if r.Method == http.MethodGet {
		at, end, status = rangeOf(r.Header, size)
	}
	h := w.Header()
	h.Set("Accept-Ranges", "bytes")
	switch status {
	case http.StatusRequestedRangeNotSatisfiable:
		h.Set("Content-Range", fmt.Sprintf("bytes */%d", size))
		fail(w, status, fmt.Sprintf("the file has %d bytes", size))
		return
	case http.StatusPartialContent:
		h.Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", at, end-1, size))
	}
	h.Set("Content-Type", "application/octet-stream")
	h.Set("Content-Length", strconv.FormatUint(end-at, 10))
	h.Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": path.Base(relative)}))
	w.WriteHeader(status)
	if r.Method == http.MethodHead {
		return
	}
	for at < end {
		if at != 0 || probe != chunkBytes {
			resp, err = read(at, min(end-at, chunkBytes))
		}
		if err != nil || len(resp.Data) == 0 {
			panic(http.ErrAbortHandler) // the file has become shorter: its reader must not take this for all of it
		}
		data := resp.Data[:min(uint64(len(resp.Data)), end-at)]
		if _, err := w.Write(data); err != nil {
			return // its reader is gone, or takes nothing
		}
		at += uint64(len(data))
	}
}

// cutOff is the error for content whose rest does not come.
func cutOff(what string, err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return connect.NewError(connect.CodeDeadlineExceeded, fmt.Errorf("nothing came of %s for too long", what))
	}
	return invalid("%s ends in the middle: %v", what, err)
}

// upload is one request with files.
type upload struct {
	*sandbox
	ctx    context.Context
	buffer []byte
	// max and left are how many bytes it may have, and how many more.
	max, left int64
}

// upload writes files: the body to a path, or each part of a form to the path that it names.
func (e *E2B) upload(w http.ResponseWriter, r *http.Request) {
	s := sandboxIn(r.Context())
	giveBack, err := e.transfers.wait(r.Context(), s.namespace)
	if err != nil {
		failFile(w, err)
		return
	}
	defer giveBack()
	body := &awaited{r.Body, http.NewResponseController(w), e.idleMax}
	r.Body = body
	u := &upload{sandbox: s, ctx: r.Context(), max: e.uploadMax, left: e.uploadMax}
	done, err := u.receive(r)
	if err != nil {
		body.refuse()
		failFile(w, err)
		return
	}
	answer(w, http.StatusOK, done)
}

func (u *upload) receive(r *http.Request) ([]written, error) {
	to := r.URL.Query().Get("path")
	switch kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); kind {
	case "multipart/form-data":
		return u.receiveForm(r, to)
	case "application/octet-stream":
		body, err := unpacked(r)
		if err != nil {
			return nil, err
		}
		done, err := u.store(to, body)
		return []written{done}, err
	}
	return nil, invalid("the content type must be multipart/form-data or application/octet-stream")
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

// store writes a file as it arrives. What was written stays if the rest does not come. The first piece
// cuts off what the file had; the last one cuts off what came late of an upload that broke off. Those
// between cut nothing off, as a piece may be written twice, the second time after its successors.
func (u *upload) store(to string, body io.Reader) (written, error) {
	relative, err := inside(to)
	if err != nil {
		return written{}, err
	}
	if relative == "" {
		return written{}, invalid("%.200q is a directory: name a file", to)
	}
	if u.buffer == nil {
		u.buffer = make([]byte, chunkBytes)
	}
	for at := uint64(0); ; {
		n, err := fill(body, u.buffer)
		last := err == io.EOF
		if err != nil && !last {
			return written{}, cutOff(fmt.Sprintf("the content of %.200q", to), err)
		}
		if u.left -= int64(n); u.left < 0 {
			return written{}, invalid("the upload has more than %d bytes, which is the limit", u.max)
		}
		_, err = u.files.WriteFile(u.ctx, &rotav1.WriteFileRequest{
			TrajectoryId: u.id, Path: relative, Offset: at, Data: u.buffer[:n], Truncate: at == 0 || last, Parents: at == 0,
		})
		if err != nil {
			return written{}, err
		}
		if at += uint64(n); last {
			return written{Path: outside(relative), Name: path.Base(outside(relative)), Type: "file"}, nil
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
