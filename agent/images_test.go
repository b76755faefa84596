package agent

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"

	"rota/agent/runtime/container"
	rotav1 "rota/api/gen/rota/v1"
)

// getter gets images in a time, or with an error.
type getter struct {
	took time.Duration
	err  error
	got  uint64
}

func (g *getter) Prefetch(ctx context.Context, _ string) error {
	select {
	case <-time.After(g.took):
		return g.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (g *getter) Pulling(string) (downloaded, all uint64) {
	g.got += 10
	return g.got, 100
}

func newImages(t *testing.T, g imageGetter) *imageService {
	return &imageService{images: g, pulls: true, most: time.Minute, calls: make(chan struct{}, 1), stop: t.Context()}
}

// A prefetch says how far it is until the image is there.
func TestAPrefetchSaysHowFarItIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newImages(t, &getter{took: 3*time.Second + time.Millisecond})
		var said []*rotav1.PrefetchImageResponse
		err := s.prefetch(t.Context(), "tools:1", func(m *rotav1.PrefetchImageResponse) error {
			said = append(said, m)
			return nil
		})
		if err != nil || len(said) != 4 || said[2].DownloadedBytes != 30 || said[2].TotalBytes != 100 || said[2].Done || !said[3].Done {
			t.Errorf("it says %v: %v", said, err)
		}
		if len(s.calls) > 0 {
			t.Error("it still has its place")
		}
	})
}

// A prefetch that fails has a reason, and a sentence that says what to do.
func TestAPrefetchThatFails(t *testing.T) {
	stopped, stop := context.WithCancel(t.Context())
	stop()
	missing := errors.Join(container.ErrNoImage, errors.New("import it"))
	for name, c := range map[string]struct {
		change       func(*imageService)
		reason, want string
		code         connect.Code
	}{
		"no containers": {func(s *imageService) { s.images, s.none = nil, "start containerd" }, "NO_CONTAINERS", "start containerd", connect.CodeFailedPrecondition},
		"too many":      {func(s *imageService) { s.calls <- struct{}{} }, "AGENT_BUSY", "later", connect.CodeResourceExhausted},
		"no image":      {func(s *imageService) { s.images = &getter{err: missing} }, "IMAGE_UNAVAILABLE", "import it", connect.CodeFailedPrecondition},
		"no registry": {func(s *imageService) { s.images, s.pulls = &getter{err: missing}, false },
			"IMAGE_UNAVAILABLE", "--pull", connect.CodeFailedPrecondition},
		"too slow":  {func(s *imageService) { s.images = &getter{took: 2 * time.Minute} }, "IMAGE_UNAVAILABLE", "after 1m0s", connect.CodeFailedPrecondition},
		"a stop":    {func(s *imageService) { s.images, s.stop = &getter{took: time.Second}, stopped }, "AGENT_BUSY", "stops", connect.CodeUnavailable},
		"no reader": {func(s *imageService) { s.images = &getter{took: 5 * time.Second} }, "", "gone", connect.CodeUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newImages(t, &getter{})
				c.change(s)
				err := s.prefetch(t.Context(), "tools:1", func(*rotav1.PrefetchImageResponse) error {
					if name == "no reader" {
						return errors.New("gone")
					}
					return nil
				})
				if err == nil || toldReason(err) != c.reason || connect.CodeOf(err) != c.code || !strings.Contains(err.Error(), c.want) {
					t.Errorf("%v", err)
				}
			})
		})
	}
}
