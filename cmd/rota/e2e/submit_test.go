package e2e

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"syscall"
	"testing"
	"time"

	"rota/api/client"
	rotav1 "rota/api/gen/rota/v1"
	"rota/cmd/internal/devcluster"
)

// TestSubmissionsInFlight kills and pauses leaders while many submissions are on
// their way, so that some are committed and their answer is lost. Each is there
// once at the end: those that were acknowledged, and no other.
func TestSubmissionsInFlight(t *testing.T) {
	t.Parallel()
	const clients, submitters, kills = 4, 4, 4
	w := newWorld(t, patient, devcluster.Config{Servers: 3})
	var (
		quit  = make(chan struct{})
		wg    sync.WaitGroup
		mu    sync.Mutex
		acked = map[string]uint64{}
	)
	submit := func(api *client.Client, who int) {
		for i := 0; ; i++ {
			select {
			case <-quit:
				return
			case <-time.After(rand.N(4 * time.Millisecond)):
			}
			name := fmt.Sprintf("%d-%d", who, i)
			ids, err := api.Submit(t.Context(), &rotav1.ActionSpec{Name: name, Command: command("true")})
			if err != nil {
				t.Errorf("submission %s: %v", name, err)
				return
			}
			mu.Lock()
			acked[name] = ids[0]
			mu.Unlock()
		}
	}
	for c := range clients {
		api, err := w.cluster.Dial()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(api.Close)
		for s := range submitters {
			wg.Go(func() { submit(api, c*submitters+s) })
		}
	}
	for i := range kills {
		w.until("enough submissions are acknowledged", func() bool {
			mu.Lock()
			defer mu.Unlock()
			return len(acked) >= i*submissionsMin/(kills-1) || t.Failed()
		})
		time.Sleep(rand.N(300 * time.Millisecond)) // at any moment
		if i == 0 {
			pauseLeaderShortly(w)
			continue
		}
		killLeader(w, nil)
		w.sameHash()
	}
	close(quit)
	wg.Wait()
	w.eachOnce(acked)
}

// pauseLeaderShortly is over once there is another, so that the old one goes on
// with what it had begun.
func pauseLeaderShortly(w *world) {
	leader := w.leader(nil)
	w.signal(leader.Pid(), syscall.SIGSTOP)
	w.leader(leader)
	w.signal(leader.Pid(), syscall.SIGCONT)
}

// submissionsMin is how many there are before the last kill.
const submissionsMin = 500

// eachOnce compares what was acknowledged, by name, with what there is.
func (w *world) eachOnce(acked map[string]uint64) {
	w.Helper()
	if len(acked) < submissionsMin {
		w.Errorf("only %d submissions were acknowledged", len(acked))
	}
	missing := len(acked)
	for _, a := range w.list() {
		if acked[a.Spec.Name] == a.Id {
			missing--
		} else {
			w.Errorf("%s was acknowledged as action %d and is there as %d", a.Spec.Name, acked[a.Spec.Name], a.Id)
		}
	}
	if missing > 0 {
		w.Errorf("%d acknowledged actions are missing", missing)
	}
	w.sameHash()
	w.Logf("%d submissions", len(acked))
}
