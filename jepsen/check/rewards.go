package check

import (
	"maps"
	"slices"
	"strings"

	"rota/jepsen/history"
)

const (
	// lingers is for how long a call without an answer may still take effect.
	lingers = 60_000_000_000
	// reportLasts is for how long a report counts for certain. Log time may run ahead of that of the
	// record, so it is far less than the 30 s of rota.
	reportLasts = 5_000_000_000
)

// rewards: a function wants as many replicas as the newest report of its gateway and its newest
// declaration ask for, has no more than its maximum, and is gone once it was removed. No replica is
// of two functions. Each function has one client, so its calls come one after the other; one that
// was not answered may take effect a while later.
func rewards(e *evidence, f *findings) {
	of := map[string][]history.Op{}
	for _, op := range e.Ops {
		if op.Function != "" {
			of[op.Function] = append(of[op.Function], op)
		}
	}
	mad := slices.ContainsFunc(e.Faults, func(x history.Fault) bool { return strings.Contains(x.Name, "clock") })
	owner := map[uint64]history.Op{}
	for _, name := range slices.Sorted(maps.Keys(of)) {
		slices.SortStableFunc(of[name], func(a, b history.Op) int { return int(a.Start - b.Start) })
		fn := &function{mad: mad}
		for _, op := range of[name] {
			fn.see(op, f)
			for _, id := range op.IDs {
				if other, known := owner[id]; known && other.Function != name {
					f.add(describeOps(other, op), "action %d is a replica of %s and of %s", id, other.Function, name)
				}
				owner[id] = op
			}
		}
	}
}

// function is what its client knows of it.
type function struct {
	mad bool // clocks were changed: reports may be old at any time
	// declared and called are the calls that may be the newest of their kind: that which was answered
	// last, first, and those without an answer. A removal is among the declared.
	declared, called []history.Op
}

func (fn *function) see(op history.Op, f *findings) {
	switch op.Verb {
	case history.RegisterReward, history.RemoveReward:
		if op.Verb == history.RemoveReward && op.Outcome == history.Fail && strings.HasSuffix(op.Error, "NOT_FOUND") {
			op.Outcome = history.OK
		}
		fn.declared = newest(fn.declared, op)
	case history.ReportReward:
		fn.called = newest(fn.called, op)
	case history.GetReward:
		fn.read(op, f)
	}
}

// newest are the calls of which any may be the newest after one more.
func newest(may []history.Op, op history.Op) []history.Op {
	switch op.Outcome {
	case history.OK:
		late := slices.DeleteFunc(slices.Clone(may), func(x history.Op) bool {
			return x.Outcome != history.Unknown || x.Start+lingers < op.Start
		})
		return append([]history.Op{op}, late...)
	case history.Unknown:
		return append(slices.Clone(may), op)
	}
	return may
}

// read holds what was read against what may be.
func (fn *function) read(op history.Op, f *findings) {
	gone := op.Outcome == history.Fail && op.Error == "REWARD_NOT_FOUND"
	if op.Outcome != history.OK && !gone {
		return
	}
	f.checked++
	may := len(fn.declared) == 0 && gone
	for _, d := range fn.declared {
		switch {
		case d.Verb == history.RemoveReward:
			may = may || gone
		case gone:
			may = may || d.Outcome == history.Unknown && !fn.registered()
		default:
			may = may || op.Limit == d.Limit && len(op.IDs) <= int(d.Limit) && slices.Contains(fn.wanted(d, op), op.Wanted)
		}
	}
	if !may {
		f.add(append(describeOps(fn.declared...), append(describeOps(fn.called...), describeOp(op))...),
			"reward function %s is read with %d replicas, of which %d are wanted and %d allowed, or not at all: no call explains that", op.Function, len(op.IDs), op.Wanted, op.Limit)
	}
}

// registered: an answer said so, and none after it that it was removed.
func (fn *function) registered() bool {
	return len(fn.declared) > 0 && fn.declared[0].Outcome == history.OK && fn.declared[0].Verb == history.RegisterReward
}

// wanted are the numbers of replicas that a function may want under a declaration.
func (fn *function) wanted(d, at history.Op) (numbers []uint32) {
	certain := false
	for _, c := range fn.called {
		numbers = append(numbers, min((c.Calls+d.Need-1)/d.Need, d.Limit))
		// Removed after the report, or before it without an answer, a function has no calls.
		certain = certain || c.Outcome == history.OK && at.End < c.Start+reportLasts && fn.declared[0].Outcome == history.OK &&
			fn.declared[0].Verb == history.RegisterReward && len(fn.declared) == 1 && c.Start > d.End
	}
	if !certain || fn.mad {
		numbers = append(numbers, 0)
	}
	return numbers
}
