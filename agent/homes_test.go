package agent

import (
	"slices"
	"testing"

	"github.com/hashicorp/go-hclog"

	"rota/agent/runtime"
	rotav1 "rota/api/gen/rota/v1"
)

func openNow(ids ...uint64) *rotav1.WatchNodeResponse {
	return &rotav1.WatchNodeResponse{OpenTrajectories: &rotav1.OpenTrajectories{Ids: ids}}
}

func assigns(trajectory uint64) *rotav1.WatchNodeResponse {
	return &rotav1.WatchNodeResponse{Assignments: []*rotav1.Assignment{{ActionId: 1, TrajectoryId: trajectory}}}
}

// A start may overtake the list that does not have its trajectory yet: what was assigned since
// is open, too.
func TestTheSupervisorHearsWhichTrajectoriesAreOpen(t *testing.T) {
	s := newSupervisor(t)
	h := newHomes(hclog.NewNullLogger(), func() runtime.Runtime { return &link{supervisor: s} })
	go func() { _ = h.keep(t.Context()) }()
	next := func(want ...uint64) {
		t.Helper()
		s.until("a list of open trajectories", func(s *supervisor) bool { return len(s.kept) > 0 })
		s.lock()
		defer s.unlock()
		got := s.kept[0]
		slices.Sort(got)
		if s.kept = s.kept[1:]; !slices.Equal(got, want) {
			t.Errorf("it heard %v, want %v", got, want)
		}
	}
	h.told(assigns(9)) // before any list: nobody knows what is open
	h.told(openNow(1, 2))
	next(1, 2)
	h.told(assigns(3))
	if got := h.list(); !slices.Contains(got, 3) {
		t.Errorf("3 was assigned: %v", got)
	}
	h.told(openNow(2))
	next(2)
	h.told(openNow())
	next()
}
