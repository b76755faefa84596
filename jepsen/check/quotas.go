package check

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strings"

	"rota/jepsen/history"
)

// quotas: of no key of a limit of concurrency more is in use at once than the
// limit, as the provider can count: each execution from its start to its end, by
// the witness.
//
// Only what was scarce proves something: what counts as checked are the moments at
// which all of a key was in use.
func quotas(e *evidence, f *findings) {
	e.providers().hold(e, f, func(q *provider) bool { return q.window == 0 })
}

// windows: of no key of a limit of so many in a window more falls into any interval
// of that length. The provider may count a call at any time between its start and
// its end, so each is taken to be counted when that is worst.
func windows(e *evidence, f *findings) {
	e.providers().hold(e, f, func(q *provider) bool { return q.window > 0 })
}

// provider is what clients have asked the limit of a quota to be.
type provider struct {
	window       int64
	limits, keys []setting
}

// setting is a value that may have held for a while.
type setting struct {
	value    uint32
	from, to int64
}

type providers map[string]*provider

// providers are all quotas that clients may have created.
func (e *evidence) providers() providers {
	all := make(providers)
	var calls []history.Op
	for _, op := range e.Ops {
		if op.Outcome == history.Fail || op.Verb != history.CreateQuota && op.Verb != history.UpdateQuota {
			continue
		}
		calls = append(calls, op)
		if all[op.Quota] == nil && op.Verb == history.CreateQuota {
			all[op.Quota] = &provider{window: op.WindowNS}
		}
	}
	for name, q := range all {
		of := slices.DeleteFunc(slices.Clone(calls), func(op history.Op) bool { return op.Quota != name })
		q.limits = settings(of, func(op history.Op) uint32 { return op.Limit })
		q.keys = settings(of, func(op history.Op) uint32 { return op.Keys })
	}
	return all
}

// settings tells from when until when each value may have held. It begins with
// its call and ends when another that began after it has been answered. A call
// without an answer may have taken effect at any time.
func settings(calls []history.Op, value func(history.Op) uint32) (all []setting) {
	calls = slices.DeleteFunc(slices.Clone(calls), func(op history.Op) bool { return value(op) == 0 })
	for _, a := range calls {
		s := setting{value(a), a.Start, math.MaxInt64}
		for _, b := range calls {
			if a.Outcome == history.OK && b.Outcome == history.OK && b.Start >= a.End {
				s.to = min(s.to, b.End)
			}
		}
		all = append(all, s)
	}
	return all
}

// most is the largest value that may have held at some time of an interval.
func most(all []setting, from, to int64) (value uint32) {
	for _, s := range all {
		if s.from <= to && s.to >= from {
			value = max(value, s.value)
		}
	}
	return value
}

// held is the use of a key by an execution, which the provider may count from its
// start on until then.
type held struct {
	history.Execution
	units uint32
	until int64
	asked int64 // when its submission began
}

// keyOf names a key of a quota.
type keyOf struct {
	quota string
	key   uint32
}

// hold goes through the uses of those quotas that fit, key by key.
func (all providers) hold(e *evidence, f *findings, fits func(*provider) bool) {
	uses := make(map[keyOf][]held)
	for _, x := range e.Executions {
		for _, use := range x.Uses {
			q := all[use.Quota]
			if q == nil {
				f.add(describeExecutions(x), "action %d used quota %q, which nobody has created", x.Action, use.Quota)
				continue
			}
			if !fits(q) {
				continue
			}
			h := held{x, use.Units, q.until(e, x), e.askedAt(x)}
			if keys := most(q.keys, h.asked, x.Start); use.Key < 1 || use.Key > keys {
				f.add(describeExecutions(x), "action %d was told to use key %d of quota %q, which has %d", x.Action, use.Key, use.Quota, keys)
				continue
			}
			uses[keyOf{use.Quota, use.Key}] = append(uses[keyOf{use.Quota, use.Key}], h)
		}
	}
	order := func(a, b keyOf) int { return cmp.Or(cmp.Compare(a.quota, b.quota), cmp.Compare(a.key, b.key)) }
	for _, k := range slices.SortedFunc(maps.Keys(uses), order) {
		all[k.quota].sweep(k, uses[k], f)
	}
}

// until is when a provider has certainly forgotten an execution. In a window that
// is counted from when it was last known to be alive: its end may have been
// recorded late. Windows pass in log time, which clocks that are made to run wrong
// carry along: from then on nothing is known.
func (q *provider) until(e *evidence, x history.Execution) int64 {
	if q.window == 0 || x.End == 0 {
		return until(x)
	}
	last := aliveAt(x)
	passed := last + q.window
	for _, fault := range e.Faults {
		if strings.HasPrefix(fault.Name, "clock-") && fault.Start < passed && max(fault.End, fault.Start) > last {
			passed = max(last, fault.Start)
		}
	}
	return passed
}

// askedAt is when somebody first asked for what became an execution.
func (e *evidence) askedAt(x history.Execution) int64 {
	if q := e.requests()[x.RequestID]; q != nil {
		return q.ops[0].Start
	}
	return 0
}

// sweep goes through the uses of one key in the order of their starts. Units are
// granted by the limit of some moment between the first submission of those in
// use and the start of the last.
func (q *provider) sweep(k keyOf, uses []held, f *findings) {
	slices.SortStableFunc(uses, func(a, b held) int { return cmp.Compare(a.Start, b.Start) })
	var now []held
	for _, h := range uses {
		now = append(slices.DeleteFunc(now, func(o held) bool { return o.until <= h.Start }), h)
		units, asked := uint32(0), h.asked
		for _, o := range now {
			units, asked = units+o.units, min(asked, o.asked)
		}
		limit := most(q.limits, asked, h.Start)
		if units == limit {
			f.checked++
		}
		if units > limit {
			f.add(describeUses(now), "%d units of key %d of quota %q are in use at %s, its limit is %d", units, k.key, k.quota, at(h.Start), limit)
		}
	}
}

func describeUses(list []held) (lines []string) {
	for _, h := range list {
		lines = append(lines, describeExecution(h.Execution))
	}
	return lines
}
