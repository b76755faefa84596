package model

import (
	"fmt"
	"math/big"

	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
)

// What providers that refuse calls teach an adaptive quota, of each key: how long to wait,
// and that half as much may be in use. Each share of a unit that succeeds gives a part of
// that back.

const (
	pauseMax  int64 = 600_000_000_000
	backoff   int64 = 1_000_000_000 // after one refusal that says nothing of time
	backoffs        = 7             // refusals in a row that are told apart
	milli           = 1000          // units are counted in thousandths
	shareBack       = 20            // of the limit comes back when as much as may be in use succeeds
)

// pressed is what a key has been taught.
type pressed struct {
	most     uint64 // thousandths of units that may be in use
	until    int64  // when the provider may be asked again
	refusals int    // in a row
}

// String says it behind what is in use.
func (p *pressed) String() string {
	if p == nil {
		return ""
	}
	return fmt.Sprintf(", %d thousandths of a unit may be from %d on", p.most, p.until)
}

// hearsProvider takes over what an attempt tells of the provider of its quotas. One that began
// before the last pause was over tells nothing but how long to wait.
func (m *Model) hearsProvider(a *action, r *logv1.AttemptReport) {
	for i, key := range a.QuotaKeys {
		q, units := a.uses[i].quota, a.uses[i].units
		p := q.pressed[key]
		stale := p != nil && a.StartedAt < p.until
		if r.Throttled {
			q.throttled++
			q.refused(key, stale, m.now, r.RetryNs)
			continue
		}
		if state.EndReason(r.Reason) == state.EndExited && r.ExitCode == 0 && p != nil && !stale {
			p.refusals = 0
			if p.most += p.grows(q, units); p.most >= q.whole() {
				delete(q.pressed, key)
			}
		}
	}
}

func (q *quota) whole() uint64 { return uint64(q.limit) * milli }

// grows returns what units that succeeded add.
func (p *pressed) grows(q *quota, units uint32) uint64 {
	n := new(big.Int).SetUint64(q.whole() / shareBack)
	n.Mul(n, big.NewInt(int64(units)*milli))
	n.Div(n, new(big.Int).SetUint64(p.most))
	if n.Sign() == 0 {
		return 1
	}
	return n.Uint64()
}

// refused teaches a key.
func (q *quota) refused(key uint32, stale bool, now, retry int64) {
	if !q.adaptive || stale && retry <= 0 {
		return
	}
	p := q.pressed[key]
	if p == nil {
		p = &pressed{most: q.whole()}
		q.pressed[key] = p
	}
	if !stale {
		if p.refusals < backoffs {
			p.refusals++
		}
		if q.window <= pauseMax { // less of a longer window would be less for too long
			p.most = max(milli, p.most/2)
		}
		if retry <= 0 {
			retry = backoff
			for range p.refusals - 1 {
				retry *= 2
			}
		}
	}
	p.until = max(p.until, now+min(retry, pauseMax))
}

// allows: of a key that has so much in use, more may be. A key without use is good for any call
// that the limit allows.
func (q *quota) allows(key, units uint32, used uint64, now int64) bool {
	after := used + uint64(units)
	p := q.pressed[key]
	if p == nil || after > uint64(q.limit) {
		return after <= uint64(q.limit)
	}
	return p.until <= now && (used == 0 || after*milli <= p.most)
}

// comparePressed compares what the row says of refused calls.
func (m *Model) comparePressed(q *quota, got *state.Quota) error {
	if got.Adaptive != q.adaptive || got.Throttled != q.throttled || len(got.Pressures) != len(q.pressed) {
		return fmt.Errorf("quota %s is %+v, must be adaptive %v, throttled %d times, with %v", q.name, got, q.adaptive, q.throttled, q.pressed)
	}
	wake := int64(0)
	for _, g := range got.Pressures {
		p := q.pressed[g.Key]
		if p == nil || p.most != g.Limit || p.until != g.PausedUntil || p.refusals != int(g.Refusals) {
			return fmt.Errorf("quota %s has learned %+v%s must be", q.name, g, p)
		}
		if p.until > m.now && (wake == 0 || p.until < wake) {
			wake = p.until
		}
	}
	if got.WakeAt != wake && !m.timersLeft() {
		return fmt.Errorf("a pause of quota %s ends at %d, must be %d", q.name, got.WakeAt, wake)
	}
	return nil
}
