package replica

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"
)

// Servers die and come back under load: what was acknowledged stays, once, and
// all agree.
func TestCrashesUnderLoad(t *testing.T) {
	const rounds, workers = 6, 16
	c := newCluster(t, 3, func(cfg *Config) {
		cfg.SnapshotThreshold, cfg.TrailingLogs, cfg.SnapshotInterval = 200, 401, 50*time.Millisecond
	})
	c.leader()
	var mu sync.RWMutex // nodes[i].replica
	acked := make(chan string, 1<<20)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				mu.RLock()
				r := c.nodes[rand.IntN(len(c.nodes))].replica
				mu.RUnlock()
				name := fmt.Sprintf("%d/%d", w, i)
				if r == nil {
					time.Sleep(time.Millisecond)
				} else if _, err := r.Propose(c.ctx(), create(name)); err == nil {
					acked <- name
				}
			}
		})
	}
	halt := sync.OnceFunc(func() {
		close(stop)
		wg.Wait()
	})
	defer halt() // before the cluster of a test that has failed goes
	for i := range rounds {
		before := len(acked)
		eventually(t, "progress", func() bool { return len(acked) > before+200 })
		victim := c.leader()
		if i%3 == 2 {
			victim = c.followers()[0]
		}
		mu.Lock()
		c.kill(victim)
		mu.Unlock()
		eventually(t, "progress without it", func() bool { return len(acked) > before+400 })
		mu.Lock()
		c.start(victim, nil)
		mu.Unlock()
		if s := victim.replica.Status(); s.Quarantined {
			t.Errorf("%s is quarantined after a mere crash: %s", victim.id, s.Reason)
		}
	}
	halt()
	close(acked)
	c.propose(c.leader(), "last")
	seen := make(map[string]int)
	for _, name := range c.agree().Names {
		seen[name]++
	}
	n := 0
	for name := range acked {
		n++
		if seen[name] != 1 {
			t.Errorf("%q was acknowledged and is there %d times", name, seen[name])
		}
	}
	t.Logf("%d acknowledged over %d crashes", n, rounds)
}
