package state

import "cmp"

// QuotaKind has the values of rota.v1.QuotaKind.
type QuotaKind uint8

// Kinds of quotas.
const (
	QuotaConcurrency QuotaKind = 1 + iota
	QuotaFixedWindow
	QuotaSlidingWindow
)

// QuotaKeysMax bounds how many keys a quota may pool.
const QuotaKeysMax = 64

// windowSteps is in how many steps the units of a window come back: up to a
// hundredth of it later than they might, so that few timers do for many calls.
const windowSteps = 100

// Quota is a limit on something outside.
type Quota struct {
	ID   QuotaID
	Name string
	Kind QuotaKind
	// Limit in units, for each key.
	Limit    uint32
	WindowNS int64 // 0 without a window
	// Keys is how many are granted from, the first ones.
	Keys uint32
	// Uses has what is in use of each key, also of those that are granted from no
	// more. It is shared between versions of the row.
	Uses []KeyUse
	// Halted says why nothing is granted; empty while it is.
	Halted string
	// Adaptive quotas learn from calls that their provider refuses. From level 3 on.
	Adaptive bool
	// Throttled counts the attempts that had calls refused.
	Throttled uint64
	// WakeAt is the log time at which the next pause is over; 0: none.
	WakeAt int64
	// Pressures has what was learned of keys, ascending by key. Without one, all of the
	// limit is granted. It is shared between versions of the row.
	Pressures []Pressure
	// Settled counts the attempts that said what they really used, SettledUnits how much that
	// was together. From level 3 on.
	Settled, SettledUnits uint64
}

// KeyUse is what is in use of one key of a quota.
type KeyUse struct {
	Held     uint32 // by actions
	Windowed uint64 // of attempts that have ended, until their window has passed
}

// InUse returns the units that the other side may count.
func (u KeyUse) InUse() uint64 { return uint64(u.Held) + u.Windowed }

// ReturnID names a return by its quota and its place in time.
type ReturnID uint64

const returnSlotBits = 32

// Quota returns the quota that the units come back to.
func (id ReturnID) Quota() QuotaID { return QuotaID(id >> returnSlotBits) }

// QuotaReturn is what comes back to a quota at one log time: units of attempts
// that ended a window earlier.
type QuotaReturn struct {
	ID    ReturnID
	Due   int64
	Units []uint64 // by key
}

// Windowed reports whether units stay in use for a window after the call.
func (r *Quota) Windowed() bool { return r.Kind != QuotaConcurrency }

// Total returns the units in use of all keys, and how many there may be.
func (r *Quota) Total() (held, windowed, limit uint64) {
	for _, u := range r.Uses {
		held += uint64(u.Held)
		windowed += u.Windowed
	}
	return held, windowed, uint64(r.Limit) * uint64(r.Keys)
}

// Overdrawn returns how many units are in use beyond the limit, of all keys together: calls
// used more than they expected to, or the limit was lowered.
func (r *Quota) Overdrawn() (units uint64) {
	for _, u := range r.Uses {
		units += u.InUse() - min(u.InUse(), uint64(r.Limit))
	}
	return units
}

// returnOf returns when a unit comes back whose call has just ended, and the row
// it is counted in.
func (r *Quota) returnOf(now int64) (id ReturnID, due int64) {
	step := max(1, r.WindowNS/windowSteps)
	slot := (now + r.WindowNS + step - 1) / step
	return ReturnID(r.ID)<<returnSlotBits | ReturnID(uint32(slot)), slot * step
}

// ReturnsAt returns the log time at which units come back of a call that ends at one.
func (r *Quota) ReturnsAt(end int64) int64 {
	if !r.Windowed() {
		return end
	}
	_, due := r.returnOf(end)
	return due
}

// Returns visits what comes back to a quota, in no order that matters.
func (s *State) Returns(id QuotaID, fn func(*QuotaReturn) bool) {
	db(s).returns.scan(ReturnID(id)<<returnSlotBits, func(r *QuotaReturn) bool { return r.ID.Quota() == id && fn(r) })
}

// NextReturn returns when units of a window come back next.
func (s *State) NextReturn(id QuotaID) (due int64, ok bool) {
	s.Returns(id, func(r *QuotaReturn) bool {
		if !ok || r.Due < due {
			due, ok = r.Due, true
		}
		return true
	})
	return due, ok
}

// Return returns a row of what comes back, nil if there is none.
func (s *State) Return(id ReturnID) *QuotaReturn { return db(s).returns.get(id) }

// Quota returns a quota, nil if there is none.
func (s *State) Quota(id QuotaID) *Quota { return db(s).quotas.get(id) }

// QuotaByName returns a quota, nil if there is none.
func (s *State) QuotaByName(name string) *Quota {
	id, _ := db(s).index.quotaNames.Get(name)
	return db(s).quotas.get(id)
}

// Quotas visits all quotas in the order of creation.
func (s *State) Quotas(fn func(*Quota) bool) { db(s).quotas.scan(0, fn) }

// QuotaCount returns how many quotas there are.
func (s *State) QuotaCount() int { return db(s).quotas.rows.Len() }

// QuotaUsers returns how many actions that have not ended name a quota.
func (s *State) QuotaUsers(id QuotaID) int {
	n, _ := db(s).index.quotaUsers.Get(id)
	return n
}

// PutQuota stores a quota, which keeps its name.
func (s *State) PutQuota(r *Quota) {
	old := db(s).quotas.put(db(s).enc, r.ID, r)
	if old == nil {
		db(s).index.quotaNames.Set(r.Name, r.ID)
	}
	move(&db(s).index.timers, old.pausing(), r.pausing(), (*Quota).pauseTimer)
}

// DeleteQuota forgets a quota.
func (s *State) DeleteQuota(id QuotaID) {
	if old := db(s).quotas.delete(id); old != nil {
		db(s).index.quotaNames.Delete(old.Name)
		s.DeleteClocks(func(q Queue) bool { return q == QueueOf(QuotaQueue, id) })
		move(&db(s).index.timers, old.pausing(), nil, (*Quota).pauseTimer)
	}
}

// pausing is the quota if a pause of it is to end, else nil.
func (r *Quota) pausing() *Quota {
	if r == nil || r.WakeAt == 0 {
		return nil
	}
	return r
}

func (r *Quota) pauseTimer() timer { return timer{r.WakeAt, TimerPause, uint64(r.ID)} }

// ReturnLater puts units of a key into the window of its quota, from now on.
func (s *State) ReturnLater(q *Quota, key uint32, units uint64) {
	id, due := q.returnOf(s.meta.Now)
	r := &QuotaReturn{ID: id, Due: due, Units: make([]uint64, max(len(q.Uses), int(key)+1))}
	if old := db(s).returns.get(id); old != nil {
		copy(r.Units, old.Units)
	}
	r.Units[key] += units
	s.PutReturn(r)
}

// PutReturn stores what comes back at one time.
func (s *State) PutReturn(r *QuotaReturn) {
	old := db(s).returns.put(db(s).enc, r.ID, r)
	Assert(old == nil || old.Due == r.Due, "units of quota %d come back at %d and at %d", r.ID.Quota(), cmp.Or(old, r).Due, r.Due)
	if old == nil {
		db(s).index.timers.Set(timer{r.Due, TimerQuota, uint64(r.ID)})
	}
}

// DeleteReturn forgets what has come back.
func (s *State) DeleteReturn(id ReturnID) {
	if old := db(s).returns.delete(id); old != nil {
		db(s).index.timers.Delete(timer{old.Due, TimerQuota, uint64(id)})
	}
}

// countUsers counts an action that has not ended with each quota that it names.
func (s *State) countUsers(r *Action, by int) {
	if r.Needs == nil || r.State.Final() {
		return
	}
	for _, use := range r.Needs.Quotas {
		n, _ := db(s).index.quotaUsers.Get(use.Quota)
		if n += by; n == 0 {
			db(s).index.quotaUsers.Delete(use.Quota)
		} else {
			db(s).index.quotaUsers.Set(use.Quota, n)
		}
	}
}

// Counts returns how many units of a use count in the window of its quota once the attempt has
// ended: what it really used, or what it expected to if it did not say.
func (r *Action) Counts(use QuotaUse) uint32 {
	for _, u := range r.Used {
		if u.Quota == use.Quota {
			return u.Units
		}
	}
	return use.Units
}

// missing returns the quota that an action has to get next, 0 if it has all.
func (r *Action) missing() QuotaID {
	if r.Needs == nil || int(r.QuotasHeld) == len(r.Needs.Quotas) {
		return 0
	}
	return r.Needs.Quotas[r.QuotasHeld].Quota
}

// Missing returns what an action waits for of which quota, if for any.
func (r *Action) Missing() (use QuotaUse, ok bool) {
	if r.missing() == 0 {
		return use, false
	}
	return r.Needs.Quotas[r.QuotasHeld], true
}

func (r *Quota) code(c *codec) {
	number(c, &r.ID)
	c.text(&r.Name)
	number(c, &r.Kind)
	number(c, &r.Limit)
	signed(c, &r.WindowNS)
	number(c, &r.Keys)
	list(c, &r.Uses, func(c *codec, u *KeyUse) {
		number(c, &u.Held)
		number(c, &u.Windowed)
	})
	c.text(&r.Halted)
	trailing(c, &r.Adaptive, (*codec).flag)
	trailing(c, &r.Throttled, number)
	trailing(c, &r.WakeAt, signed)
	trailingList(c, &r.Pressures, func(c *codec, p *Pressure) { p.code(c) })
	trailing(c, &r.Settled, number)
	trailing(c, &r.SettledUnits, number)
}

func (r *QuotaReturn) code(c *codec) {
	number(c, &r.ID)
	signed(c, &r.Due)
	list(c, &r.Units, number[uint64])
}
