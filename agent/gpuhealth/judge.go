package gpuhealth

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
)

// Durations are in nanoseconds of whatever clock the caller has; it must not go back.
const (
	second = int64(1_000_000_000)
	// holds is for how long a condition has to hold that may pass by itself.
	holds = 10 * second
	// ClearAfter is for how long a condition has to be gone before its GPU is well.
	ClearAfter = 60 * second
	// sameEvent is within what time events of the same kind are one.
	sameEvent = 60 * second
	// reasonMax is how many bytes a reason has at most.
	reasonMax = 128
)

// Condition is something that is wrong with a GPU as long as it is seen.
type Condition string

// Conditions that are read from a GPU.
const (
	Lost            Condition = "fallen off the bus"
	ResetRequired   Condition = "reset required"
	Uncorrected     Condition = "uncorrected ECC errors"
	RemapFailed     Condition = "row remapping failed"
	RemapPending    Condition = "row remapping pending a reset"
	LinkDown        Condition = "NVLink down"
	statedLongest             = 100 // bytes of what an operator states
	statedOtherwise           = "stated without a reason"
)

// Stated is a condition that somebody states, in these words.
func Stated(reason string) Condition {
	reason = strings.ToValidUTF8(strings.TrimSpace(reason), "?")
	if len(reason) > statedLongest {
		reason = strings.ToValidUTF8(reason[:statedLongest], "")
	}
	return Condition(cmp.Or(reason, statedOtherwise))
}

// holds returns for how long the condition must hold before it counts. A link may be trained
// anew within seconds; nothing else passes by itself.
func (c Condition) holds() int64 {
	if c == LinkDown {
		return holds
	}
	return 0
}

// Sick is a GPU that is to be used for nothing new.
type Sick struct {
	GPU    int
	Reason string // at most 128 bytes
}

// Event is what happened to a GPU and has to be remembered.
type Event struct {
	GPU   int    `json:"gpu"`
	XID   uint64 `json:"xid"`
	Times int    `json:"times"`
}

// seen is a condition of a GPU.
type seen struct {
	since, last int64 // it was first seen, and last
	present     bool  // it was seen when the GPU was read last
	counts      bool  // it has held for long enough
}

// xidKey finds an event.
type xidKey struct {
	gpu int
	xid uint64
}

type happened struct {
	times int
	last  int64
}

// Judge remembers what was seen of the GPUs of a node.
type Judge struct {
	gpus       int
	clearAfter int64
	conditions []map[Condition]*seen // by GPU
	events     map[xidKey]*happened
}

// New returns a judge of so many GPUs, of which nothing was seen yet. A condition has to be gone
// for clearAfter nanoseconds.
func New(gpus int, clearAfter int64) *Judge {
	j := &Judge{gpus: gpus, clearAfter: clearAfter, events: map[xidKey]*happened{}}
	for range gpus {
		j.conditions = append(j.conditions, map[Condition]*seen{})
	}
	return j
}

// Read tells which conditions of a GPU hold now: all of them.
func (j *Judge) Read(now int64, gpu int, holding ...Condition) {
	if gpu < 0 || gpu >= j.gpus {
		return
	}
	for _, s := range j.conditions[gpu] {
		s.present = false
	}
	for _, c := range holding {
		s := j.conditions[gpu][c]
		if s == nil {
			s = &seen{since: now}
			j.conditions[gpu][c] = s
		}
		s.present, s.last = true, now
		s.counts = s.counts || now-s.since >= c.holds()
	}
	maps.DeleteFunc(j.conditions[gpu], func(_ Condition, s *seen) bool { return !s.present && now-s.last >= j.clearAfter })
}

// Happened tells of an XID of a GPU. It reports whether the XID is critical and counts as a new
// event, which is to be remembered beyond the end of the process.
func (j *Judge) Happened(now int64, gpu int, xid uint64) bool {
	if gpu < 0 || gpu >= j.gpus || !Critical(xid) {
		return false
	}
	h := j.events[xidKey{gpu, xid}]
	if h == nil {
		h = &happened{last: math.MinInt64 / 2}
		j.events[xidKey{gpu, xid}] = h
	}
	isNew := now-h.last >= sameEvent
	if h.last = now; isNew {
		h.times++
	}
	return isNew
}

// Events returns what happened since the machine booted, by GPU and XID.
func (j *Judge) Events() (all []Event) {
	for k, h := range j.events {
		all = append(all, Event{k.gpu, k.xid, h.times})
	}
	slices.SortFunc(all, func(a, b Event) int { return cmp.Or(cmp.Compare(a.GPU, b.GPU), cmp.Compare(a.XID, b.XID)) })
	return all
}

// Remember tells of events of an earlier process. Those that are not critical to this build, or
// of GPUs that are gone, are left out.
func (j *Judge) Remember(events []Event) {
	for _, e := range events {
		if e.GPU >= 0 && e.GPU < j.gpus && Critical(e.XID) && e.Times > 0 {
			j.events[xidKey{e.GPU, e.XID}] = &happened{times: e.Times, last: math.MinInt64 / 2}
		}
	}
}

// Sick returns the GPUs that are sick, by their numbers. A reason does not change while what was
// seen does not.
func (j *Judge) Sick() (all []Sick) {
	events := j.Events()
	for gpu := range j.gpus {
		var reasons []string
		for _, e := range events {
			if e.GPU == gpu {
				reasons = append(reasons, e.text())
			}
		}
		for _, c := range slices.Sorted(maps.Keys(j.conditions[gpu])) {
			if j.conditions[gpu][c].counts {
				reasons = append(reasons, string(c))
			}
		}
		if len(reasons) > 0 {
			all = append(all, Sick{gpu, short(strings.Join(reasons, ", "))})
		}
	}
	return all
}

// text is "XID 79 (fallen off the bus)", with how often if it was more than once.
func (e Event) text() string {
	text := fmt.Sprintf("XID %d (%s)", e.XID, xids[e.XID])
	if e.Times > 1 {
		text += fmt.Sprintf(", %d times", e.Times)
	}
	return text
}

func short(s string) string {
	if len(s) <= reasonMax {
		return s
	}
	return strings.ToValidUTF8(s[:reasonMax-3], "") + "..."
}
