package plan

import "testing"

// TestTheLoadCountsAttemptsByPhase: one that ended under an earlier agent, and one that is reported.
func TestTheLoadCountsAttemptsByPhase(t *testing.T) {
	p := New(7, []Accepted{{Key: Key{Action: 1, Attempt: 1, Incarnation: 7}}, {Key: Key{Action: 2, Attempt: 1, Incarnation: 7}, Reported: true}})
	l := p.Load(5)
	if l.Attempts[running] != 1 || l.Attempts[reported] != 1 || l.Cores != 0 || l.LeaseNS != 0 || l.Registered || l.Connected {
		t.Errorf("%+v", l)
	}
	p.table.remove(p.table.attempts[0])
	if l := p.Load(5); l.Attempts[running] != 0 || l.Attempts[reported] != 1 {
		t.Errorf("after one is forgotten: %+v", l)
	}
	if len(PhaseNames) != int(reported)+1 {
		t.Errorf("%d names of phases", len(PhaseNames))
	}
}
