package rpc

import (
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	logv1 "rota/api/gen/log/v1"
	rotav1 "rota/api/gen/rota/v1"
	"rota/fsm/state"
)

// StartEstimate says within which time from now an action starts in one of two cases and
// in most, in nanoseconds. If Unknown is not empty, it says why that is not known.
type StartEstimate struct {
	P50NS, P90NS int64
	Unknown      string
}

// Why a submission is answered without an estimate.
const (
	unseenHere = "the server that answers has not seen the action yet: ask for the action"
	goneHere   = "it has ended and is no longer kept"
	notNow     = "the server is busy with other estimates: ask for the action"
)

// Submissions must not wait for their estimates. So these take at most a part of one core's
// time, on average; but for a while as much as they need.
const (
	estimatePart  = 8
	estimateBurst = time.Second
)

// estimateBudget is the time that estimates of submissions may take.
type estimateBudget struct {
	mu   sync.Mutex
	left time.Duration
	at   time.Time // when that was counted; zero: never
}

// allows reports whether there may be an estimate now.
func (b *estimateBudget) allows(now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.at.IsZero() {
		b.left = estimateBurst
	} else {
		b.left = min(estimateBurst, b.left+now.Sub(b.at)/estimatePart)
	}
	b.at = now
	return b.left > 0
}

func (b *estimateBudget) spend(took time.Duration) {
	b.mu.Lock()
	b.left -= took
	b.mu.Unlock()
}

func (e StartEstimate) message() *rotav1.StartEstimate {
	if e.Unknown != "" {
		return &rotav1.StartEstimate{UnknownReason: e.Unknown}
	}
	return &rotav1.StartEstimate{P50: durationpb.New(time.Duration(e.P50NS)), P90: durationpb.New(time.Duration(e.P90NS))}
}

// estimate says when the actions of accepted submissions start, in their order, by this
// server's own state. It does not wait for that to have the actions.
func (s *Server) estimate(results ...*logv1.Result) (out []*rotav1.StartEstimate) {
	began := time.Now()
	if !s.estimates.allows(began) {
		for _, r := range results {
			for range r.Count {
				out = append(out, StartEstimate{Unknown: notNow}.message())
			}
		}
		return out
	}
	defer func() { s.estimates.spend(time.Since(began)) }()
	ids := idsOf(results)
	if len(ids) > 1 { // that takes longer: nothing is to wait for it
		return s.estimatesIn(s.Machine.Fork(), ids)
	}
	s.Machine.View(func(st *state.State) { out = s.estimatesIn(st, ids) })
	return out
}

// idsOf returns the actions of accepted submissions.
func idsOf(results []*logv1.Result) (ids []state.ActionID) {
	for _, r := range results {
		for i := range r.Count {
			ids = append(ids, state.ActionID(r.FirstId+uint64(i)))
		}
	}
	return ids
}

func (s *Server) estimatesIn(st *state.State, ids []state.ActionID) []*rotav1.StartEstimate {
	rows := make([]*state.Action, 0, len(ids))
	for _, id := range ids {
		if a := st.Action(id); a != nil {
			rows = append(rows, a)
		}
	}
	known, out := s.EstimateStarts(st, rows, s.LogTime()), make([]*rotav1.StartEstimate, len(ids))
	for i, id := range ids {
		e := StartEstimate{Unknown: unseenHere}
		switch {
		case len(rows) > 0 && rows[0].ID == id:
			e, known, rows = known[0], known[1:], rows[1:]
		case id <= st.Meta().LastAction:
			e.Unknown = goneHere
		}
		out[i] = e.message()
	}
	return out
}

// Bounds of the delay that a client is told to wait for room in the queue. An estimate may
// be too high, and clients give up after some time: so they ask again meanwhile.
const roomDelayMin, roomDelayMax = 10 * time.Millisecond, 10 * time.Second

// untilRoom sets how long to wait after a refusal because the queue is full: until an action
// is expected to leave it, if that is known.
func (s *Server) untilRoom(f *failure) *failure {
	if f.reason != "QUEUE_FULL" {
		return f
	}
	if retry := s.room.after(time.Now(), s.estimateRoom); retry > 0 {
		f.retry = retry
	}
	return f
}

// estimateRoom is 0 if nothing is known.
func (s *Server) estimateRoom() (retry time.Duration) {
	now := s.LogTime()
	s.Machine.View(func(st *state.State) {
		if ns, known := s.EstimateRoom(st, now); known {
			retry = min(max(time.Duration(ns), roomDelayMin), roomDelayMax)
		}
	})
	return retry
}

// roomAgeMax is for how long the answer to one refused submission is good for others: there
// are many where the queue is full.
const roomAgeMax = 100 * time.Millisecond

// roomDelay remembers a delay for a short time.
type roomDelay struct {
	mu    sync.Mutex
	at    time.Time
	delay time.Duration
}

func (r *roomDelay) after(now time.Time, estimate func() time.Duration) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.at.IsZero() || now.Sub(r.at) > roomAgeMax {
		r.delay = estimate()
		r.at = now
	}
	return r.delay
}
