package check

import (
	"testing"

	"rota/jepsen/history"
)

// scoredBeside adds what a client knows of a reward function that it registers, calls and removes.
func scoredBeside(r *history.Record) {
	now := second
	for _, op := range []history.Op{
		{Verb: history.GetReward, Outcome: history.Fail, Error: "REWARD_NOT_FOUND"},
		{Verb: history.RegisterReward, Limit: 2, Need: 2},
		{Verb: history.GetReward, Limit: 2},
		{Verb: history.ReportReward, Calls: 3},
		{Verb: history.GetReward, Limit: 2, Wanted: 2, IDs: []uint64{90_001, 90_002}},
		{Verb: history.ReportReward, Calls: 9, Outcome: history.Unknown},
		{Verb: history.ReportReward, Calls: 1},
		{Verb: history.GetReward, Limit: 2, Wanted: 1, IDs: []uint64{90_001, 90_002}},
		{Verb: history.RemoveReward},
		{Verb: history.GetReward, Outcome: history.Fail, Error: "REWARD_NOT_FOUND"},
	} {
		now += second / 10
		op.Client, op.Function, op.Start, op.End = 11, "math", now, now+second/100
		if op.Outcome == "" {
			op.Outcome = history.OK
		}
		r.Ops = append(r.Ops, op)
	}
}

// scored finds a read of the function, by what it wanted.
func scored(t *testing.T, r *history.Record, wanted uint32) *history.Op {
	return pick(t, r.Ops, func(op *history.Op) bool {
		return op.Verb == history.GetReward && op.Outcome == history.OK && op.Wanted == wanted
	})
}

var brokenRewards = []caseOf{
	{"rewards", "too many replicas", "no call explains that", func(t *testing.T, r *history.Record) {
		scored(t, r, 2).IDs = []uint64{90_001, 90_002, 90_003}
	}},
	{"rewards", "a report is forgotten", "of which 0 are wanted", func(t *testing.T, r *history.Record) {
		scored(t, r, 2).Wanted = 0
	}},
	{"rewards", "another maximum", "7 allowed", func(t *testing.T, r *history.Record) { scored(t, r, 1).Limit = 7 }},
	{"rewards", "a function is lost", "or not at all", func(t *testing.T, r *history.Record) {
		op := scored(t, r, 2)
		op.Outcome, op.Error = history.Fail, "REWARD_NOT_FOUND"
	}},
	{"rewards", "a function comes back", "no call explains that", func(t *testing.T, r *history.Record) {
		last := &r.Ops[len(r.Ops)-1]
		last.Outcome, last.Error, last.Limit = history.OK, "", 2
	}},
	{"rewards", "a replica of two functions", "is a replica of", func(t *testing.T, r *history.Record) {
		op := *scored(t, r, 2)
		op.Function = "code"
		r.Ops = append(r.Ops, op)
	}},
}

var unsuspiciousRewards = []caseOf{
	{"rewards", "an unanswered report counts after all", "", func(t *testing.T, r *history.Record) { scored(t, r, 1).Wanted = 2 }},
	{"rewards", "an unanswered removal counts", "", func(t *testing.T, r *history.Record) {
		remove := pick(t, r.Ops, func(op *history.Op) bool { return op.Verb == history.RemoveReward })
		remove.Outcome = history.Unknown
		last := &r.Ops[len(r.Ops)-1]
		last.Outcome, last.Error, last.Limit, last.Wanted = history.OK, "", 2, 1
	}},
}
