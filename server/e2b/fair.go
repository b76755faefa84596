package e2b

import (
	"context"
	"fmt"
	"sync"
	"time"

	"connectrpc.com/connect"

	"rota/api/backoff"
)

// fairWait is how long something waits for its share.
const fairWait = 30 * time.Second

// fair shares a number of units, such as bytes, between namespaces. A namespace may hold as many
// as are then still free: alone it gets half of them, so the next one always finds some.
type fair struct {
	mu   sync.Mutex
	free int64
	by   map[string]int64
}

func newFair(units int64) *fair { return &fair{free: units, by: map[string]int64{}} }

// change makes what one holder in a namespace holds from one number into another. More is refused
// if that is not fair; less never is.
func (f *fair) change(namespace string, from, to int64) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	more := to - from
	holds := f.by[namespace] + more
	if more > 0 && holds > f.free-more {
		return false
	}
	f.free -= more
	if f.by[namespace] = holds; holds == 0 {
		delete(f.by, namespace)
	}
	return true
}

// take takes units, which giveBack returns.
func (f *fair) take(namespace string, units int64) (giveBack func(), ok bool) {
	return func() { f.change(namespace, units, 0) }, f.change(namespace, 0, units)
}

// wait takes one unit as soon as that is fair.
func (f *fair) wait(ctx context.Context, namespace string) (giveBack func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, fairWait)
	defer cancel()
	for pause := (backoff.Backoff{Least: 10 * time.Millisecond, Most: 500 * time.Millisecond}); ; {
		if giveBack, ok := f.take(namespace, 1); ok {
			return giveBack, nil
		}
		if backoff.Sleep(ctx, pause.Next()) != nil {
			return nil, connect.NewError(connect.CodeResourceExhausted, fmt.Errorf("the server works with too many files of namespace %s at this moment: try again", namespace))
		}
	}
}
