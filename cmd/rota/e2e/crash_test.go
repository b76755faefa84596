package e2e

import (
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"rota/cmd/internal/devcluster"
	"rota/internal/need"
)

// TestCrashesOnANode kills an agent, or its supervisor, again and again while
// they start attempts, and while they start themselves: at every write of their
// journals and every word between them there is a moment before and one after.
func TestCrashesOnANode(t *testing.T) {
	need.Tool(t, "sh", "flock")
	t.Parallel()
	for _, c := range []struct {
		name    string
		crashes int
		crash   func(w *world, agent *devcluster.Process)
	}{
		{"agent", 20, crashAgent},
		{"supervisor", 10, crashSupervisor},
		{"either", 10, func(w *world, agent *devcluster.Process) {
			if rand.N(2) == 0 {
				crashAgent(w, agent)
			} else {
				crashSupervisor(w, agent)
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			const atOnce = 6
			w := newWorld(t, patient, devcluster.Config{Servers: 1, Agents: 1})
			l := newLoad(w)
			l.start(2)
			for range c.crashes {
				for i := range atOnce {
					l.submit(submission{retry: i%2 == 0})
				}
				time.Sleep(rand.N(60 * time.Millisecond))
				c.crash(w, w.cluster.Agents[0])
				if rand.N(2) == 0 { // else the next may come before all is well again
					l.progress(1)
				}
			}
			l.progress(20)
			o := l.settle()
			o.check()
			if len(o.actions) < c.crashes*atOnce {
				t.Errorf("only %d actions have run", len(o.actions))
			}
			t.Logf("%d actions, %d attempts", len(o.actions), w.count("start"))
		})
	}
}

func crashAgent(w *world, agent *devcluster.Process) {
	w.Helper()
	w.kill(agent)
	w.start(agent)
}

// crashSupervisor leaves it to the agent to start another.
func crashSupervisor(w *world, agent *devcluster.Process) {
	w.Helper()
	w.signal(w.supervisor(agent), syscall.SIGKILL)
}
