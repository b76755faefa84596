package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/hashicorp/go-hclog"
	"google.golang.org/protobuf/proto"

	"rota/agent/files"
	"rota/agent/runtime"
	rotav1 "rota/api/gen/rota/v1"
	"rota/api/share"
)

// filesOf serves the files of trajectories in a folder.
func filesOf(dir string) *fileService {
	noRuntime := func() runtime.Runtime { return nil }
	return &fileService{dir: dir, homes: newHomes(hclog.NewNullLogger(), noRuntime), forks: &forks{}, conn: noRuntime, calls: share.New[uint64](fileCallsMax)}
}

// TestFilesWhileTheSupervisorIsAway: a call for files that begin with a snapshot is to be tried again.
func TestFilesWhileTheSupervisorIsAway(t *testing.T) {
	n := newForkNode(t)
	n.down = true
	_, err := n.use(t.Context(), 7, 3)
	if err == nil {
		t.Fatal("files that do not exist are served")
	}
	if err := unusable(t.Context(), err); connect.CodeOf(err) != connect.CodeUnavailable {
		t.Errorf("%v, want to be told to try again", err)
	}
}

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
	s := filesOf(dir)
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

// TestCallsOfOneTrajectoryLeaveRoomForOthers: they wait for each other, and the others do not wait.
func TestCallsOfOneTrajectoryLeaveRoomForOthers(t *testing.T) {
	dir := t.TempDir()
	for _, trajectory := range []uint64{7, 8} {
		if err := os.MkdirAll(runtime.TrajectoryDir(dir, trajectory), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	s := filesOf(dir)
	list := func(trajectory uint64) error {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		_, err := s.ListFiles(ctx, &rotav1.ListFilesRequest{TrajectoryId: trajectory})
		return err
	}
	var releases []func()
	for {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		release, err := s.turn(ctx, 7)
		cancel()
		if err != nil {
			break
		}
		releases = append(releases, release)
	}
	if err := list(7); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("beside %d calls of the same trajectory: %v", len(releases), err)
	}
	if err := list(8); err != nil {
		t.Errorf("beside %d calls of another trajectory: %v", len(releases), err)
	}
	for _, release := range releases {
		release()
	}
	if err := list(7); err != nil {
		t.Error(err)
	}
}

// TestPagesHaveABoundOfBytes: a page of links with long targets is what a server reads, and none is left out.
func TestPagesHaveABoundOfBytes(t *testing.T) {
	dir := t.TempDir()
	home := runtime.TrajectoryDir(dir, 7)
	if err := os.MkdirAll(home, 0o700); err != nil {
		t.Fatal(err)
	}
	const links = 500
	for i := range links {
		if err := os.Symlink(strings.Repeat("\xff", 4000), filepath.Join(home, fmt.Sprint(i))); err != nil {
			t.Fatal(err)
		}
	}
	s, got := filesOf(dir), 0
	for req := (&rotav1.ListFilesRequest{TrajectoryId: 7}); ; {
		resp, err := s.ListFiles(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		if size := proto.Size(resp); size > 1<<20+64<<10 {
			t.Errorf("a page has %d bytes", size)
		}
		got += len(resp.Files)
		if req.PageToken = resp.NextPageToken; req.PageToken == "" {
			break
		}
	}
	if got != links {
		t.Errorf("%d links are listed, want %d", got, links)
	}
}

// TestARemovalEndsWithItsCaller: what is left stays.
func TestARemovalEndsWithItsCaller(t *testing.T) {
	dir := t.TempDir()
	kept := filepath.Join(runtime.TrajectoryDir(dir, 7), "d", "kept")
	if err := os.MkdirAll(kept, 0o700); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	err := filesOf(dir).with(ctx, 7, func(h *files.Home) error {
		cancel()
		return h.Remove(ctx, "d", true)
	})
	if _, left := os.Stat(kept); err == nil || left != nil {
		t.Errorf("the removal: %v; what is left: %v", err, left)
	}
}
