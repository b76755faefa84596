package runtime

import (
	"fmt"
	"math"
	goruntime "runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"syscall"
	"time"

	"rota/agent/plan"
)

// To execute a program may take long, or for ever, on a disk that hangs. With the launcher (launcher.go), the
// attempt waits for that and nothing else does. On a machine without the launcher, other attempts are forked
// after that.
//
//   - An order to end the attempt is obeyed where namespaces or cgroups end it, a lease that ends among
//     them.
//   - Other ends are reaped.
//   - Go's scheduler cannot stop a thread that forks. A collection of garbage would wait for it with
//     the world stopped, and the supervisor would stand still. So none begins during a fork.

const (
	// forkMax is how long a program may take to be executed.
	forkMax = time.Minute
	// killForkingEvery is the pause between two kills of what is being forked.
	killForkingEvery = 20 * time.Millisecond

	// collectEvery is how often it is looked whether there is garbage to collect.
	collectEvery = 100 * time.Millisecond
	// heapGrowthMin is how much the heap grows at least between two collections.
	heapGrowthMin = 8 << 20
	// heapBytesMax is when garbage is collected at any time.
	heapBytesMax = 1 << 30
	// schedulersMin are the threads that run Go: one may fork an attempt and one a cell.
	schedulersMin = 3
)

// fork forks what is in the box.
func (r *runner) fork(c *command) (child, error) {
	done := make(chan struct{})
	var watch sync.WaitGroup
	watch.Go(func() { r.killForking(done, c.path) })
	out, err := r.sup.spawner.start(c, r.box, r.a.ending.killed)
	close(done)
	watch.Wait()
	return out, err
}

// killForking ends the attempt when that is ordered before its program is executed, or when that takes
// too long.
func (r *runner) killForking(done <-chan struct{}, path string) {
	select {
	case <-done:
		return
	case <-r.forking:
	}
	late := time.NewTimer(forkMax)
	defer late.Stop()
	select {
	case <-done:
		return
	case <-late.C:
		r.a.ending.order(killOrder{plan.ReasonStartFailed, fmt.Sprintf("%s was not executed within %v: the disk that it is on may hang, or another process has a lease of it", path, forkMax)})
	case <-r.a.ending.killed:
	}
	for {
		r.killChild()
		select {
		case <-done:
			return
		case <-time.After(killForkingEvery):
		}
	}
}

// killChild ends what is being forked, whose number is not known. The thread that forks is not in the
// namespace of its processes.
func (r *runner) killChild() {
	if r.cell != nil {
		r.cell.kill()
	} else if b, ok := r.box.(*cgroupBox); ok {
		b.killForked()
	}
}

// collectBetweenForks has garbage of this process collected when no fork is under way.
func collectBetweenForks() {
	goruntime.GOMAXPROCS(max(goruntime.GOMAXPROCS(0), schedulersMin)) // and it stays so
	percent := debug.SetGCPercent(-1)
	if percent < 0 { // GOGC=off
		return
	}
	if debug.SetMemoryLimit(-1) == math.MaxInt64 {
		debug.SetMemoryLimit(heapBytesMax)
	}
	go func() {
		live := heapBytes()
		for range time.Tick(collectEvery) {
			if heapBytes() >= live+max(heapGrowthMin, live/100*uint64(percent)) {
				collect()
				live = heapBytes()
			}
		}
	}()
}

func collect() {
	syscall.ForkLock.RLock() // which who forks holds until the program is executed
	defer syscall.ForkLock.RUnlock()
	goruntime.GC()
}

// heapBytes is what the heap holds, with its garbage.
func heapBytes() uint64 {
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}
