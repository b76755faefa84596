package demo

import (
	"context"
	"fmt"
	"io"
	"time"

	"google.golang.org/protobuf/proto"

	rotav1 "rota/api/gen/rota/v1"
)

// Resizing is how many cores an action had while it ran: alone, beside another, which is
// the second of Shared, and alone again.
type Resizing struct {
	Alone  int   `json:"cores_alone"`
	Shared []int `json:"cores_shared"`
	After  int   `json:"cores_after"`
}

// resizePatience is how long a change of cores may take.
const resizePatience = 20 * time.Second

// resize shows an action that makes room for another, and gets its cores back.
func (d *demo) resize(ctx context.Context) error {
	node, err := d.api.Nodes.GetNode(ctx, &rotav1.GetNodeRequest{Name: d.cluster.Agents[0].Name})
	switch {
	case err != nil:
		return err
	case d.cores < 2:
		return nil
	case !node.Node.Resizes:
		d.progress.say("the cores of a running action cannot be changed here: %s", node.Node.Runtime)
		return nil
	}
	d.progress.begin("a running action makes room for another", 0, nil)
	r := &Resizing{}
	first, err := d.stays(ctx)
	if err != nil {
		return err
	}
	if r.Alone, err = d.cpusOf(ctx, first, func(n int) bool { return n > 1 }); err != nil {
		return err
	}
	second, err := d.stays(ctx)
	if err != nil {
		return err
	}
	one, err := d.cpusOf(ctx, first, func(n int) bool { return n < r.Alone })
	if err != nil {
		return err
	}
	two, err := d.cpusOf(ctx, second, func(n int) bool { return n > 0 })
	if err != nil {
		return err
	}
	r.Shared = []int{one, two}
	if _, err := d.api.Cancel(ctx, second); err != nil {
		return err
	}
	if r.After, err = d.cpusOf(ctx, first, func(n int) bool { return n > one }); err != nil {
		return err
	}
	d.progress.say("it had %d cores, %d when another came, and %d when that was over", r.Alone, one, r.After)
	d.resizing = r
	if _, err := d.api.Cancel(ctx, first); err != nil {
		return err
	}
	for _, id := range []uint64{first, second} {
		if _, err := d.api.Wait(ctx, id); err != nil {
			return err
		}
	}
	return nil
}

// stays submits an action that can use all cores and goes on until it is canceled.
func (d *demo) stays(ctx context.Context) (id uint64, err error) {
	spec := d.rota.spec([]string{"sleep", "600"})
	spec.Resources = &rotav1.Resources{Cores: proto.Uint32(1), MaxCores: uint32(d.cores)}
	ids, err := d.rota.submit(ctx, spec)
	if err != nil {
		return 0, err
	}
	return ids[0], nil
}

// cpusOf waits until the number of an action's CPUs is as expected.
func (d *demo) cpusOf(ctx context.Context, id uint64, expected func(int) bool) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, resizePatience)
	defer cancel()
	for {
		a, err := d.api.Get(ctx, id)
		if err != nil {
			return 0, fmt.Errorf("the cores of action %d: %w", id, err)
		}
		if n := len(a.Cpus); expected(n) {
			return n, nil
		}
		select {
		case <-ctx.Done():
			return 0, fmt.Errorf("action %d still has %d cores after %v", id, len(a.Cpus), resizePatience)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// write says it for people.
func (r *Resizing) write(w io.Writer) {
	fmt.Fprintf(w, "a running action had %d cores alone, %d beside another with %d, and %d afterwards; both were canceled then\n", r.Alone, r.Shared[0], r.Shared[1], r.After)
}
