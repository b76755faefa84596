package agent

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"connectrpc.com/connect"

	"rota/api/codec"
	rotav1 "rota/api/gen/rota/v1"
	"rota/api/gen/rota/v1/rotav1connect"
	"rota/api/intake"
)

const (
	// prefetchesMax is how many calls may wait for images. The pulls of a node are bounded apart from that.
	prefetchesMax = 64
	// prefetchEvery is how often a call says how far it is.
	prefetchEvery = time.Second
)

// imageGetter has what prefetches need of the sandboxes of a node.
type imageGetter interface {
	Prefetch(ctx context.Context, image string) error
	Pulling(image string) (downloaded, all uint64)
}

// imageService gets images for servers, which have checked who may have them.
type imageService struct {
	images imageGetter // nil: the node runs no containers, for the reason none
	none   string
	pulls  bool // from registries
	most   time.Duration
	calls  chan struct{}
	stop   context.Context // ends with the agent
}

var _ rotav1connect.ImageServiceHandler = (*imageService)(nil)

// newImageHandler serves prefetches until the context ends.
func newImageHandler(ctx context.Context, a *agent) (path string, h http.Handler) {
	s := &imageService{none: a.specs.noContainers, pulls: len(a.cfg.Containers.Pull.Hosts) > 0, most: a.cfg.Containers.openMax(),
		calls: make(chan struct{}, prefetchesMax), stop: ctx}
	if a.sandboxes != nil {
		s.images = a.sandboxes
	}
	path, h = rotav1connect.NewImageServiceHandler(s, codec.ForHandler(), intake.ForHandler(), connect.WithReadMaxBytes(requestBytesMax))
	return path, intake.Handler(h, intake.Limits{MessageBytes: requestBytesMax, Budget: intake.NewBudget(decodingMax)})
}

// PrefetchImage implements rotav1connect.ImageServiceHandler.
func (s *imageService) PrefetchImage(ctx context.Context, req *rotav1.PrefetchImageRequest, stream *connect.ServerStream[rotav1.PrefetchImageResponse]) error {
	return s.prefetch(ctx, req.GetImage(), stream.Send)
}

// prefetch gets an image, and says how far it is.
func (s *imageService) prefetch(ctx context.Context, image string, say func(*rotav1.PrefetchImageResponse) error) error {
	if s.images == nil {
		return refuse(connect.CodeFailedPrecondition, "NO_CONTAINERS", "the node runs no containers: "+s.none)
	}
	select {
	case s.calls <- struct{}{}:
		defer func() { <-s.calls }()
	default:
		return refuse(connect.CodeResourceExhausted, "AGENT_BUSY", fmt.Sprintf("%d prefetches of images are under way on the node: try again later", cap(s.calls)))
	}
	ctx, cancel := context.WithTimeout(ctx, s.most)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- s.images.Prefetch(ctx, image) }()
	tick := time.NewTicker(prefetchEvery)
	defer tick.Stop()
	for {
		select {
		case err := <-ended:
			if err != nil {
				return s.failed(ctx, err)
			}
			return say(&rotav1.PrefetchImageResponse{Done: true})
		case <-tick.C:
			downloaded, all := s.images.Pulling(image)
			if err := say(&rotav1.PrefetchImageResponse{DownloadedBytes: downloaded, TotalBytes: all}); err != nil {
				return err
			}
		case <-s.stop.Done():
			return refuse(connect.CodeUnavailable, "AGENT_BUSY", "the agent of the node stops: try again when it has started")
		}
	}
}

// failed is what the caller is told of an image that the node did not get.
func (s *imageService) failed(ctx context.Context, err error) error {
	message := err.Error()
	switch {
	case ctx.Err() == context.DeadlineExceeded:
		message = fmt.Sprintf("the image is not there after %v: %v", s.most, err)
	case !s.pulls:
		message += ", or have its agent pull from registries with --pull"
	}
	return refuse(connect.CodeFailedPrecondition, "IMAGE_UNAVAILABLE", message)
}
