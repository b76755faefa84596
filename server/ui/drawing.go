package ui

import (
	"fmt"
	"math"
	"time"

	rotav1 "rota/api/gen/rota/v1"
)

// bar is a piece of a timeline, in thousandths of its width.
type bar struct {
	// Kind is "queue", "run" or "think".
	Kind  string
	X, W  float64
	Title string
	// Action is 0 of thinking.
	Action uint64
	// Failed: the action ended without success.
	Failed bool
}

// timeline is what a trajectory did: it thinks (the model generates), its actions queue, and they
// run.
type timeline struct {
	Bars              []bar
	From, To          time.Time
	Think, Queue, Run time.Duration
}

// timelineWidth is the width of the drawing.
const timelineWidth = 1000

// timelineOf draws actions, the newest first, of a trajectory. Actions that run at the same time
// lie on each other; thinking is when none is queued or runs. cut: there were others before. Then it
// begins with the oldest of these, as nothing is known of the time before.
func timelineOf(t *rotav1.Trajectory, newestFirst []*rotav1.Action, cut bool, now time.Time) (l timeline) {
	if len(newestFirst) == 0 {
		return l
	}
	l.From, l.To = t.OpenTime.AsTime(), now
	if t.EndTime != nil {
		l.To = t.EndTime.AsTime()
	}
	if cut {
		l.From = newestFirst[0].SubmitTime.AsTime()
		for _, a := range newestFirst {
			l.From = earlier(l.From, a.SubmitTime.AsTime())
		}
	}
	busy := l.From
	for i := len(newestFirst) - 1; i >= 0; i-- {
		a := newestFirst[i]
		submit, start, end := a.SubmitTime.AsTime(), l.To, l.To
		if a.StartTime != nil {
			start = a.StartTime.AsTime()
		}
		if a.EndTime != nil {
			end = a.EndTime.AsTime()
			start = earlier(start, end)
		}
		if submit.After(busy) {
			l.Think += submit.Sub(busy)
			l.add("think", busy, submit, 0, false)
		}
		l.Queue += max(0, start.Sub(submit))
		l.Run += max(0, end.Sub(start))
		failed := a.EndTime != nil && a.State != rotav1.ActionState_ACTION_STATE_SUCCEEDED
		l.add("queue", submit, start, a.Id, failed)
		l.add("run", start, end, a.Id, failed)
		if end.After(busy) {
			busy = end
		}
	}
	if l.To.After(busy) {
		l.Think += l.To.Sub(busy)
		l.add("think", busy, l.To, 0, false)
	}
	return l
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

func (l *timeline) add(kind string, from, to time.Time, action uint64, failed bool) {
	whole := l.To.Sub(l.From).Seconds()
	if whole <= 0 || !to.After(from) {
		return
	}
	title := fmt.Sprintf("%s %s", kind, brief(to.Sub(from)))
	if action != 0 {
		title = fmt.Sprintf("action %d: %s", action, title)
	}
	l.Bars = append(l.Bars, bar{
		Kind: kind, X: from.Sub(l.From).Seconds() / whole * timelineWidth, W: max(1, to.Sub(from).Seconds()/whole*timelineWidth),
		Title: title, Action: action, Failed: failed,
	})
}

// arc is a reservation on the ring of a node group: a path of SVG around (0, 0).
type arc struct {
	Path, Title string
	// Colour is a number from 0 to 7, the same for all arcs of a job.
	Colour uint64
	Job    string
}

// ring is the reservations of a node group in the slots from now on, clockwise from the top.
type ring struct {
	Group *rotav1.NodeGroup
	Arcs  []arc
	// Reserved is the share of the slots, in percent.
	Reserved int
}

const (
	ringOuter, ringInner = 100, 70
	coloursMax           = 8
)

// ringOf draws a group of the ledger.
func ringOf(l *rotav1.GetLedgerResponse, g *rotav1.LedgerGroup) ring {
	r := ring{Group: g.Group}
	slots, reserved := float64(l.Slots), int64(0)
	if slots <= 0 {
		return r
	}
	for _, i := range g.Intervals {
		from, to := max(0, i.Start-l.NowSlot), min(int64(l.Slots), i.End-l.NowSlot)
		if to <= from {
			continue
		}
		reserved += to - from
		slot := l.Slot.AsDuration()
		r.Arcs = append(r.Arcs, arc{
			Path: arcPath(float64(from)/slots, float64(to)/slots), Colour: i.JobId % coloursMax, Job: i.Job,
			Title: fmt.Sprintf("%s: in %s, for %s", i.Job, brief(time.Duration(from)*slot), brief(time.Duration(to-from)*slot)),
		})
	}
	r.Reserved = int(math.Round(100 * float64(reserved) / slots))
	return r
}

// arcPath is the path of a part of the ring, from and to in turns.
func arcPath(from, to float64) string {
	to = min(to, from+0.9999) // a whole circle has no beginning and no end
	large := 0
	if to-from > 0.5 {
		large = 1
	}
	x := func(turn, radius float64) float64 { return radius * math.Sin(2*math.Pi*turn) }
	y := func(turn, radius float64) float64 { return -radius * math.Cos(2*math.Pi*turn) }
	return fmt.Sprintf("M%.2f %.2fA%d %d 0 %d 1 %.2f %.2fL%.2f %.2fA%d %d 0 %d 0 %.2f %.2fZ",
		x(from, ringOuter), y(from, ringOuter), ringOuter, ringOuter, large, x(to, ringOuter), y(to, ringOuter),
		x(to, ringInner), y(to, ringInner), ringInner, ringInner, large, x(from, ringInner), y(from, ringInner))
}

type ledgerPage struct {
	Ledger *rotav1.GetLedgerResponse
	Span   time.Duration
	Rings  []ring
	Jobs   []*rotav1.Job
	// JobsCut: there are jobs that are not listed.
	JobsCut   bool
	Namespace string
}

func loadLedger(v *viewer) (any, error) {
	slots, err := v.slots()
	p := ledgerPage{Namespace: v.oneNamespace()}
	p.Ledger = call(v, &err, v.ledger.GetLedger, &rotav1.GetLedgerRequest{Group: v.query.Get("group"), Slots: slots, AllowStale: true})
	jobs := callIf(v.mayRead("job", p.Namespace), v, &err, v.jobs.ListJobs, &rotav1.ListJobsRequest{Namespace: p.Namespace, PageSize: pageRows, AllowStale: true})
	if err != nil {
		return nil, err
	}
	p.Jobs, p.JobsCut = jobs.Jobs, jobs.NextPageToken != ""
	p.Span = time.Duration(p.Ledger.Slots) * p.Ledger.Slot.AsDuration()
	for _, g := range p.Ledger.Groups {
		p.Rings = append(p.Rings, ringOf(p.Ledger, g))
	}
	return p, nil
}
