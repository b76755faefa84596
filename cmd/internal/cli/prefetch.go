package cli

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"rota/api/client"
	rotav1 "rota/api/gen/rota/v1"
)

const (
	// prefetchSays is the least time between two lines about a node.
	prefetchSays = 5 * time.Second
	// prefetchTriesMax is how often a node is asked whose answers break off.
	prefetchTriesMax = 10
)

func (a *app) imagePrefetchCmd() *cobra.Command {
	var nodes []string
	var pool string
	var parallel int
	cmd := &cobra.Command{
		Use: "prefetch IMAGE", Short: "Have nodes get an image before it is needed", Args: exactly("IMAGE"),
		Long: `Has each node find, import or pull the image, as the first action of a trajectory with it would,
and waits until all have it. Without --node, these are the nodes that run containers, of one pool or of
all. A node that has the image already pulls nothing.

The exit code is 0 if every node has the image.`,
		Example: "  rota image prefetch python:3.12 --pool gpu\n  rota image prefetch python:3.12 --node node-1 --node node-2",
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(nodes) > 0 && pool != "" {
				return usageErrorf("--node names nodes, and --pool those of a pool; give only one of them")
			}
			if parallel < 1 {
				return usageErrorf("--parallel is %d; set it to 1 or more", parallel)
			}
			var err error
			if len(nodes) == 0 {
				if nodes, err = a.containerNodes(cmd.Context(), pool); err != nil {
					return err
				}
			}
			c, err := a.dial()
			if err != nil {
				return err
			}
			slices.Sort(nodes)
			p := &prefetch{a: a, c: c, image: args[0]}
			return p.run(cmd.Context(), slices.Compact(nodes), parallel)
		},
	}
	cmd.Flags().StringSliceVar(&nodes, "node", nil, "node that gets the image (default: all that run containers)")
	cmd.Flags().StringVar(&pool, "pool", "", "only nodes of this pool")
	cmd.Flags().IntVar(&parallel, "parallel", 8, "nodes that get the image at once")
	return cmd
}

// containerNodes are the nodes of a pool, or of all, that run containers. Those that are down count.
func (a *app) containerNodes(ctx context.Context, pool string) (names []string, err error) {
	nodes, err := a.allNodes(ctx, pool)
	if err != nil {
		return nil, err
	}
	for _, n := range nodes {
		if n.GetContainers() {
			names = append(names, n.GetName())
		}
	}
	switch {
	case len(names) > 0:
		return names, nil
	case pool != "":
		return nil, fmt.Errorf("no node of pool %s runs containers: see rota node list", pool)
	}
	return nil, fmt.Errorf("no node runs containers: start agents with --containerd auto")
}

// prefetch is one image for some nodes.
type prefetch struct {
	a     *app
	c     *client.Client
	image string

	mu   sync.Mutex // of what is printed
	ends []prefetchEnd
}

// prefetchEnd is how it went on a node.
type prefetchEnd struct {
	Node    string  `json:"node"`
	Seconds float64 `json:"seconds"`
	Error   string  `json:"error,omitempty"`
}

// run asks some nodes at once. It asks all, also after one has failed.
func (p *prefetch) run(ctx context.Context, nodes []string, parallel int) error {
	var all errgroup.Group
	all.SetLimit(parallel)
	for _, node := range nodes {
		all.Go(func() error {
			began := time.Now()
			err := p.onNode(ctx, node)
			p.ended(node, time.Since(began), err)
			return nil
		})
	}
	_ = all.Wait()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	failed := 0
	for _, e := range p.ends {
		if e.Error != "" {
			failed++
		}
	}
	if p.a.json() {
		if err := writeJSON(p.a.out, map[string][]prefetchEnd{"nodes": p.ends}); err != nil {
			return err
		}
	}
	if failed > 0 {
		return &codeError{exitError, fmt.Errorf("%d of %d nodes do not have image %s", failed, len(nodes), p.image)}
	}
	return nil
}

// onNode waits until a node has the image. A server that stops hands the wait to another.
func (p *prefetch) onNode(ctx context.Context, node string) error {
	for tries := 1; ; tries++ {
		err := p.try(ctx, node)
		if err == nil || !lostConnection(err) || tries == prefetchTriesMax || ctx.Err() != nil {
			return err
		}
	}
}

func (p *prefetch) try(ctx context.Context, node string) error {
	stream, m, err := client.First(ctx, p.c, func(ctx context.Context) (*connect.ServerStreamForClient[rotav1.PrefetchImageResponse], error) {
		return p.c.Images.PrefetchImage(ctx, &rotav1.PrefetchImageRequest{Node: node, Image: p.image})
	})
	if err != nil {
		return err
	}
	defer stream.Close()
	var said time.Time
	for more := m != nil; more; more = stream.Receive() {
		if m = stream.Msg(); m.GetDone() {
			return nil
		}
		if all := m.GetTotalBytes(); all > 0 && time.Since(said) >= prefetchSays {
			said = time.Now()
			p.mu.Lock()
			fmt.Fprintf(p.a.err, "%s: %s of %s\n", printable(node), formatSize(m.GetDownloadedBytes()), formatSize(all))
			p.mu.Unlock()
		}
	}
	if err := stream.Err(); err != nil {
		return err
	}
	return connect.NewError(connect.CodeUnavailable, fmt.Errorf("the server did not say how it ended on node %s", node))
}

// ended prints how it went on a node.
func (p *prefetch) ended(node string, took time.Duration, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	e := prefetchEnd{Node: node, Seconds: took.Seconds()}
	if err != nil {
		e.Error = describe(err, p.a.settings.addr)
	}
	p.ends = append(p.ends, e)
	switch {
	case p.a.json():
	case err != nil:
		fmt.Fprintf(p.a.out, "%s: %s\n", printable(node), printableLines(e.Error))
	default:
		fmt.Fprintf(p.a.out, "%s: ready after %s\n", printable(node), formatDuration(took))
	}
}
