package agent

import (
	"errors"
	"fmt"
	"testing"

	"rota/agent/runtime"
	rotav1 "rota/api/gen/rota/v1"
)

// changed builds changes of the desired state at an index.
func changed(since, index uint64, gone []uint64, actions ...int) *rotav1.WatchNodeResponse {
	m := desired(index, actions...)
	m.Since = since
	for _, id := range gone {
		m.Gone = append(m.Gone, &rotav1.GoneAttempt{ActionId: id, Attempt: 1})
	}
	return m
}

func TestChangesOfTheDesiredState(t *testing.T) {
	w := world()
	step := func(m *rotav1.WatchNodeResponse, wants error, want string) {
		t.Helper()
		if err := w.desire(7, m, specs()); !errors.Is(err, wants) || err != nil && wants == nil {
			t.Errorf("desired state %v: %v, want %v", m, err, wants)
		}
		startAll(w)
		if got := phases(w); got != want {
			t.Errorf("after %v: %s, want %s", m, got, want)
		}
	}
	step(desired(101, 1, 2), nil, "map[1:running 2:running]")
	step(changed(101, 102, nil, 3), nil, "map[1:running 2:running 3:running]")
	step(changed(102, 103, nil), nil, "map[1:running 2:running 3:running]")
	step(changed(103, 104, []uint64{2}, -1), nil, "map[1:running! 2:running! 3:running]")
	// One is missing: what is not named need not be what was before.
	step(changed(105, 106, []uint64{3}, 4), errGap, "map[1:running! 2:running! 3:running]")
	step(changed(104, 103, []uint64{3}), nil, "map[1:running! 2:running! 3:running]") // late
	step(desired(106, -1, 4), nil, "map[1:running! 2:running! 3:running! 4:running]")
	step(changed(106, 107, []uint64{9}), nil, "map[1:running! 2:running! 3:running! 4:running]")
	step(&rotav1.WatchNodeResponse{Index: 108, Since: 107, Fenced: true}, errFenced, "map[1:running! 2:running! 3:running! 4:running]")
}

// TestASecondAttemptWaitsForTheEndOfTheFirst, also if there were others in between.
func TestASecondAttemptWaitsForTheEndOfTheFirst(t *testing.T) {
	w := world()
	attempt := func(n uint32) *rotav1.Assignment {
		as := assignment(1)
		as.Attempt = n
		return as
	}
	refused := func(n uint32) bool {
		return w.attempts[runtime.Key{Action: 1, Attempt: n, Incarnation: 7}].refusal != nil
	}
	all := &rotav1.WatchNodeResponse{Index: 101}
	for n := uint32(1); n <= 3; n++ {
		all.Assignments = append(all.Assignments, attempt(n))
		if err := w.desire(7, all, specs()); err != nil {
			t.Fatal(err)
		}
	}
	if refused(1) || !refused(2) || !refused(3) {
		t.Errorf("refused: %v, %v, %v; want the second and the third", refused(1), refused(2), refused(3))
	}
	startAll(w)
	w.Exited(runtime.Exit{Key: k(1), Reason: runtime.ReasonExited})
	all.Assignments = append(all.Assignments, attempt(4))
	if err := w.desire(7, all, specs()); err != nil || refused(4) {
		t.Errorf("refused after the first has ended: %v, %v", refused(4), err)
	}
	if err := w.desire(7, desired(102), specs()); err != nil {
		t.Fatal(err)
	}
	for _, a := range w.attempts {
		w.remove(a)
	}
	if len(w.byAction) != 0 {
		t.Errorf("%d actions are left of an empty table", len(w.byAction))
	}
}

// BenchmarkDesire starts one attempt and forgets another, on a node with 1,000.
func BenchmarkDesire(b *testing.B) {
	const n = 1000
	for _, changes := range []bool{false, true} {
		b.Run(fmt.Sprintf("changes=%v", changes), func(b *testing.B) {
			w, s := world(), specs()
			whole := &rotav1.WatchNodeResponse{Index: 100}
			for id := range uint64(n) {
				as := assignment(id + 1)
				as.Cpus = nil
				whole.Assignments = append(whole.Assignments, as)
			}
			_ = w.desire(7, whole, s)
			startAll(w)
			next := uint64(n)
			b.ReportAllocs()
			for b.Loop() {
				next++
				as := assignment(next)
				as.Cpus = nil
				m := &rotav1.WatchNodeResponse{Index: whole.Index + 1}
				whole.Index++
				whole.Assignments[(next-1)%n] = as
				if changes {
					m.Since, m.Assignments, m.Gone = m.Index-1, []*rotav1.Assignment{as}, []*rotav1.GoneAttempt{{ActionId: next - n, Attempt: 1}}
				} else {
					m.Assignments = whole.Assignments
				}
				w.attempts[k(next-n)].phase = phaseReported
				if err := w.desire(7, m, s); err != nil {
					b.Fatal(err)
				}
			}
			if len(w.attempts) != n {
				b.Fatalf("%d attempts are left, want %d", len(w.attempts), n)
			}
		})
	}
}
