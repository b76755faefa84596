package agent

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/protobuf/proto"

	"rota/agent/runtime"
	rotav1 "rota/api/gen/rota/v1"
)

// TestNamesThatAreNoText: a list with such names can be decoded by all clients, and its pages go on
// behind them.
func TestNamesThatAreNoText(t *testing.T) {
	dir := t.TempDir()
	home := runtime.TrajectoryDir(dir, 7)
	if err := os.MkdirAll(home, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a", "50%", "\xfe", "\xff", "\xff\xff"} {
		if err := os.Symlink("\xff", filepath.Join(home, name)); err != nil {
			t.Fatal(err)
		}
	}
	noRuntime := func() runtime.Runtime { return nil }
	s := &fileService{dir: dir, homes: newHomes(hclog.NewNullLogger(), noRuntime), forks: &forks{}, conn: noRuntime, calls: make(chan struct{}, 1)}
	var names []string
	for req := (&rotav1.ListFilesRequest{TrajectoryId: 7, PageSize: 1}); ; {
		resp, err := s.ListFiles(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := proto.Marshal(resp); err != nil || len(names) > 5 {
			t.Fatalf("%v after %q", err, names)
		}
		names = append(names, resp.Files[0].Name)
		if req.PageToken = resp.NextPageToken; req.PageToken == "" {
			break
		}
	}
	if want := []string{"50%", "a", "\ufffd", "\ufffd", "\ufffd"}; !slices.Equal(names, want) {
		t.Errorf("got %q, want %q", names, want)
	}
	if _, err := s.ListFiles(t.Context(), &rotav1.ListFilesRequest{TrajectoryId: 7, PageToken: "%"}); err == nil {
		t.Error("a token that is none is accepted")
	}
}
