package client

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	rotav1 "rota/api/gen/rota/v1"
	"rota/api/gen/rota/v1/rotav1connect"
)

// home keeps the files of one trajectory. The first write of each arrives once more before the file
// gets its name, as one does whose answer was lost.
type home struct {
	rotav1connect.FileServiceClient
	files map[string][]byte
	late  *rotav1.WriteFileRequest
	names []string
}

func (h *home) WriteFile(_ context.Context, r *rotav1.WriteFileRequest) (*rotav1.WriteFileResponse, error) {
	if h.late == nil {
		h.late = r
		h.names = append(h.names, r.Path)
	}
	h.write(r)
	return &rotav1.WriteFileResponse{}, nil
}

func (h *home) write(r *rotav1.WriteFileRequest) {
	file, end := h.files[r.Path], int(r.Offset)+len(r.Data)
	if more := end - len(file); more > 0 {
		file = append(file, make([]byte, more)...)
	}
	copy(file[r.Offset:], r.Data)
	if r.Truncate {
		file = file[:end]
	}
	h.files[r.Path] = file
}

func (h *home) MoveFile(_ context.Context, r *rotav1.MoveFileRequest) (*rotav1.MoveFileResponse, error) {
	if h.late == nil {
		return nil, errors.New("nothing was written")
	}
	h.write(h.late)
	h.files[r.NewPath] = h.files[r.Path]
	delete(h.files, r.Path)
	h.late = nil
	return &rotav1.MoveFileResponse{}, nil
}

func TestAWriteThatArrivesLateTakesNothingAway(t *testing.T) {
	h := &home{files: map[string][]byte{}}
	c := &Client{Files: h}
	// Two chunks: the second one is written by one goroutine.
	content := bytes.Repeat([]byte("0123456789abcdef"), (chunkBytes+chunkBytes/2)/16)
	for name, want := range map[string][]byte{"a/b": content, "empty": nil, strings.Repeat("\u03b1", 127): []byte("x")} {
		if err := c.UploadFile(t.Context(), 5, name, bytes.NewReader(want), int64(len(want)), 0); err != nil {
			t.Fatal(err)
		}
		if got := h.files[name]; !bytes.Equal(got, want) {
			t.Errorf("%s has %d bytes, want %d", name, len(got), len(want))
		}
	}
	if len(h.files) != 3 {
		t.Errorf("%d files are left", len(h.files))
	}
	for _, name := range h.names {
		if len(name) > 255 || !utf8.ValidString(name) {
			t.Errorf("%q has %d bytes", name, len(name))
		}
	}
}
