package fsm

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"rota/fsm/state"
)

// spent is units that the other side has counted, until a log time.
type spent struct {
	units uint64
	until int64 // 0: the call has not ended
}

// budget counts what the provider of a quota sees, by nothing but reports and grants.
type budget struct {
	t rapid.TB
	*story
	calls map[state.ActionID]*spent
	said  uint64 // how many calls said what they used
	total uint64
}

const (
	budgetLimit  = 50
	budgetWindow = 10 * time.Second
)

func newBudget(t rapid.TB) *budget {
	b := &budget{t: t, story: newStory(t), calls: make(map[state.ActionID]*spent)}
	b.do("register node=n1 numa=2")
	b.do(fmt.Sprintf("quota name=tokens kind=sliding limit=%d window=%v", budgetLimit, budgetWindow))
	return b
}

func (b *budget) do(line string) { b.apply(b.t, parseCommand(b.t, line)...) }

// seen returns the units in use now.
func (b *budget) seen() (units uint64) {
	for _, c := range b.calls {
		if c.until == 0 || c.until > b.now {
			units += c.units
		}
	}
	return units
}

// grants takes over what was granted by the last entry, in the order of the grants, which must
// have been free.
func (b *budget) grants(r *rapid.T) {
	b.state.Actions(0, func(a *state.Action) bool {
		if a.State == state.ActionRunning && b.calls[a.ID] == nil {
			expected := uint64(a.Needs.Quotas[0].Units)
			if before := b.seen(); before+expected > budgetLimit {
				r.Fatalf("action %d is granted %d units, where %d of %d are in use", a.ID, expected, before, budgetLimit)
			}
			b.calls[a.ID] = &spent{units: expected}
		}
		return true
	})
}

// report ends a call, which says what it used or says nothing. Then it says something else.
func (b *budget) report(r *rapid.T, id state.ActionID) {
	line, units := fmt.Sprintf("report node=n1 action=%d", id), b.calls[id].units
	if rapid.Bool().Draw(r, "said") {
		units = uint64(rapid.SampledFrom([]int{0, 1, 10, 30, 200}).Draw(r, "units"))
		b.said++
		b.total += units
		line += fmt.Sprintf(" usage=tokens:%d", units)
	}
	b.calls[id].units, b.calls[id].until = units, b.now+int64(budgetWindow)
	b.do(line)
	b.grants(r)
	b.do(fmt.Sprintf("report node=n1 action=%d usage=tokens:49", id))
}

// TestABudgetIsNeverExceededByAGrant: whatever calls say that they used, units are granted only
// if the window has them, each call is settled once, and all comes back.
func TestABudgetIsNeverExceededByAGrant(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := newBudget(t)
		for range rapid.IntRange(5, 40).Draw(t, "steps") {
			b.now += int64(rapid.IntRange(0, 4).Draw(t, "passed")) * int64(time.Second)
			b.do("tick")
			b.grants(t)
			if id := anyRunning(t, b.story); id != 0 && rapid.Bool().Draw(t, "report") {
				b.report(t, id)
				continue
			}
			b.do(fmt.Sprintf("submit cores=0 quotas=tokens:%d", rapid.IntRange(1, budgetLimit).Draw(t, "expected")))
			b.grants(t)
		}
		for id := anyRunning(t, b.story); ; id = anyRunning(t, b.story) {
			if id != 0 {
				b.report(t, id)
			}
			b.now += 2 * int64(budgetWindow)
			b.do("tick")
			if b.grants(t); b.state.Counts().Queued == 0 && anyRunning(t, b.story) == 0 {
				break
			}
		}
		if q := b.state.Quota(1); q.Settled != b.said || q.SettledUnits != b.total || q.Uses[0] != (state.KeyUse{}) {
			t.Fatalf("%d calls used %d units, all windows have passed, and the quota is %+v", b.said, b.total, q)
		}
	})
}
