package e2e

import (
	"math/rand/v2"
	"testing"
	"time"

	"rota/cmd/internal/devcluster"
	"rota/internal/need"
)

// TestAgentCrashes kills an agent again and again while it starts attempts, and
// while it starts itself: at every write of its journal and every word to its
// supervisor there is a moment before and a moment after.
func TestAgentCrashes(t *testing.T) {
	need.Tool(t, "sh", "flock")
	t.Parallel()
	const crashes, atOnce = 20, 6
	w := newWorld(t, patient, devcluster.Config{Servers: 1, Agents: 1})
	l := newLoad(w)
	l.start(2)
	agent := w.cluster.Agents[0]
	for range crashes {
		for i := range atOnce {
			l.submit(submission{retry: i%2 == 0})
		}
		time.Sleep(rand.N(60 * time.Millisecond))
		w.kill(agent)
		w.start(agent)
		if rand.N(2) == 0 { // else the next crash may come before it is ready
			l.progress(1)
		}
	}
	l.progress(20)
	o := l.settle()
	o.check()
	if len(o.actions) < crashes*atOnce {
		t.Errorf("only %d actions have run", len(o.actions))
	}
	t.Logf("%d actions, %d attempts", len(o.actions), w.count("start"))
}
