package fsm

import (
	"sync"
	"testing"

	logv1 "rota/api/gen/log/v1"
)

// TestForksBesideApplying: a copy marks what it shares, in the original too, so
// readers that fork and the applying of entries must not copy at once. The race
// detector judges.
func TestForksBesideApplying(t *testing.T) {
	m := bootstrapped(t, Options{})
	var readers sync.WaitGroup
	stop := make(chan struct{})
	for range 2 {
		readers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					m.Fork()
				}
			}
		})
	}
	for i := range 500 {
		e := logv1.Entry{TimeNs: int64(i), Commands: []*logv1.Command{{Verb: &logv1.Command_Tick{Tick: &logv1.Tick{}}}}}
		data, err := e.MarshalVT()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := m.ApplyData(uint64(100+i), 0, data); err != nil {
			t.Fatal(err)
		}
	}
	close(stop)
	readers.Wait()
}
