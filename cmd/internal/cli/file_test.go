package cli

import (
	"bytes"
	"context"
	"testing"

	"rota/api/codec"
	rotav1 "rota/api/gen/rota/v1"
	"rota/api/gen/rota/v1/rotav1connect"
)

// fileServer keeps one file. The first write arrives once more before the last one, as one does that was
// repeated because its answer was late.
type fileServer struct {
	rotav1connect.UnimplementedFileServiceHandler
	content []byte
	first   *rotav1.WriteFileRequest
}

func (s *fileServer) WriteFile(_ context.Context, req *rotav1.WriteFileRequest) (*rotav1.WriteFileResponse, error) {
	if s.first == nil {
		s.first = req
	}
	s.write(req)
	if req.Offset > 0 && req.Offset == uint64(len(s.first.Data)) {
		s.write(s.first)
	}
	return &rotav1.WriteFileResponse{}, nil
}

func (s *fileServer) write(req *rotav1.WriteFileRequest) {
	end := int(req.Offset) + len(req.Data)
	if more := end - len(s.content); more > 0 {
		s.content = append(s.content, make([]byte, more)...)
	}
	copy(s.content[req.Offset:], req.Data)
	if req.Truncate {
		s.content = s.content[:end]
	}
}

// TestFileWriteLosesNothing of what was written, whatever arrives twice, and leaves nothing of a longer file.
func TestFileWriteLosesNothing(t *testing.T) {
	for _, size := range []int{0, 3, 1 << 20, 5 << 19} {
		s := &fileServer{content: bytes.Repeat([]byte("old"), 1<<20)}
		all := services{}
		all.add(rotav1connect.NewFileServiceHandler(s, codec.ForHandler()))
		root := (&app{out: &bytes.Buffer{}, err: &bytes.Buffer{}}).root()
		root.SetArgs([]string{"file", "write", "5:a", "--addr", serve(t, all)})
		want := bytes.Repeat([]byte("n"), size)
		root.SetIn(bytes.NewReader(want))
		if err := root.ExecuteContext(t.Context()); err != nil || !bytes.Equal(s.content, want) {
			t.Errorf("%d bytes became %d, %v", size, len(s.content), err)
		}
	}
}
