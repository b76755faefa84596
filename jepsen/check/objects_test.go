package check

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"rota/jepsen/history"
)

// Calls to one object, of which only what matters is set.

func get(state string, attempt uint32) history.Op {
	return history.Op{Verb: history.Get, Target: 7, Outcome: history.OK, State: state, Attempt: attempt}
}

func cancel(o history.Outcome) history.Op {
	return history.Op{Verb: history.Cancel, Target: 7, Outcome: o}
}

func submit(o history.Outcome, replayed bool, ids ...uint64) history.Op {
	return history.Op{Verb: history.Submit, RequestID: "r", Outcome: o, Replayed: replayed, IDs: ids}
}

func drain(o history.Outcome, draining bool) history.Op {
	return history.Op{Verb: history.Drain, Node: "n", Outcome: o, Draining: draining}
}

func node(draining bool, incarnation uint64) history.Op {
	return history.Op{Verb: history.GetNode, Node: "n", Outcome: history.OK, Draining: draining, Incarnation: incarnation}
}

func open(state, node string) history.Op {
	return history.Op{Verb: history.OpenTrajectory, RequestID: "t", IDs: []uint64{3}, Outcome: history.OK, State: state, Node: node}
}

func look(state, node string) history.Op {
	return history.Op{Verb: history.GetTrajectory, Target: 3, Outcome: history.OK, State: state, Node: node}
}

func shut(o history.Outcome, state string) history.Op {
	return history.Op{Verb: history.CloseTrajectory, Target: 3, Outcome: o, State: state}
}

func quota(verb history.Verb, o history.Outcome, limit, keys uint32) history.Op {
	return history.Op{Verb: verb, Quota: "q", Outcome: o, Limit: limit, Keys: keys}
}

func existing(verb history.Verb, reason string) history.Op {
	return history.Op{Verb: verb, Quota: "q", Outcome: fail, Error: reason}
}

func noQuota(verb history.Verb) history.Op { return existing(verb, "QUOTA_NOT_FOUND") }

func job(o history.Outcome, change string) history.Op {
	return history.Op{Verb: history.ChangeJob, Job: "j", Outcome: o, Change: change}
}

func newJob(o history.Outcome, replayed bool) history.Op {
	return history.Op{Verb: history.SubmitJob, Job: "j", RequestID: "j", Outcome: o, Replayed: replayed}
}

func seeJob(state string, deleting bool) history.Op {
	return history.Op{Verb: history.GetJob, Job: "j", Outcome: ok, State: state, Deleting: deleting}
}

// refusedJob is a call that was refused for a reason.
func refusedJob(op history.Op, reason string) history.Op {
	op.Outcome, op.Error, op.State = fail, reason, ""
	return op
}

func turn(o history.Outcome, replayed bool, ids ...uint64) history.Op {
	return history.Op{Verb: history.Acquire, RequestID: "r", Deployment: "j/actor", Outcome: o, Replayed: replayed, IDs: ids}
}

// during makes a call last from the start of the first call to now.
func during(op history.Op) history.Op {
	op.Start = 1
	return op
}

const (
	ok      = history.OK
	fail    = history.Fail
	unknown = history.Unknown
)

var missing = history.Op{Verb: history.Get, Target: 7, Outcome: fail, Error: "ACTION_NOT_FOUND"}

var noJob = refusedJob(seeJob("", false), "JOB_NOT_FOUND")

// histories are short ones of one object each.
var histories = []struct {
	name  string
	legal bool
	ops   []history.Op
}{
	{"an action goes on", true, []history.Op{submit(ok, false, 7), get("QUEUED", 0), get("RUNNING", 1), get("QUEUED", 1), get("RUNNING", 2), get("LOST", 2), get("LOST", 2)}},
	{"an action goes back to the queue without a loss", false, []history.Op{get("RUNNING", 1), get("QUEUED", 0)}},
	{"an old attempt", false, []history.Op{get("RUNNING", 2), get("RUNNING", 1)}},
	{"an end that does not stay", false, []history.Op{get("SUCCEEDED", 1), get("RUNNING", 1)}},
	{"two ends", false, []history.Op{get("SUCCEEDED", 1), get("LOST", 1)}},
	{"overlapping reads may see either", true, []history.Op{get("SUCCEEDED", 1), during(get("RUNNING", 1))}},
	{"an acknowledged action is missing", false, []history.Op{submit(ok, false, 7), missing}},
	{"an action is missing before it was acknowledged", true, []history.Op{missing, submit(unknown, false), missing, submit(ok, true, 7), get("QUEUED", 0)}},
	{"an action was read and is missing", false, []history.Op{submit(unknown, false), get("QUEUED", 0), missing, submit(ok, true, 7)}},
	{"a canceled action waits no more", false, []history.Op{cancel(ok), get("QUEUED", 0)}},
	{"a canceled action may still run", true, []history.Op{get("RUNNING", 1), cancel(ok), get("RUNNING", 1), get("CANCELED", 1)}},
	{"a cancel without an answer may come late", true, []history.Op{cancel(unknown), get("QUEUED", 0), get("QUEUED", 0), get("CANCELED", 0)}},
	{"a cancel that was refused is none", true, []history.Op{cancel(fail), get("QUEUED", 0)}},

	{"a repetition", true, []history.Op{submit(ok, false, 7, 8), submit(ok, true, 7, 8)}},
	{"the first answer was lost", true, []history.Op{submit(unknown, false), submit(ok, true, 7), submit(ok, true, 7)}},
	{"the first call was lost", true, []history.Op{submit(unknown, false), submit(ok, false, 7), submit(ok, true, 7)}},
	{"two first ones", false, []history.Op{submit(ok, false, 7), submit(ok, false, 7)}},
	{"other IDs", false, []history.Op{submit(ok, false, 7), submit(ok, true, 8)}},
	{"fewer IDs", false, []history.Op{submit(ok, false, 7, 8), submit(ok, true, 7)}},
	{"a first one after a repetition", false, []history.Op{submit(unknown, false), submit(ok, true, 7), submit(ok, false, 7)}},
	{"no IDs", false, []history.Op{submit(ok, false)}},

	{"drained and back", true, []history.Op{node(false, 1), drain(ok, true), node(true, 1), drain(ok, false), node(false, 2)}},
	{"a drain is not seen", false, []history.Op{drain(ok, true), node(false, 1)}},
	{"a drain that nobody asked for", false, []history.Op{node(true, 1)}},
	{"a drain without an answer, seen late", true, []history.Op{drain(unknown, true), node(false, 1), node(true, 1)}},
	{"a drain without an answer happens once", false, []history.Op{drain(unknown, true), node(true, 1), drain(ok, false), node(false, 1), node(true, 1)}},
	{"a refused drain", true, []history.Op{drain(fail, true), node(false, 1)}},
	{"two drains at once", true, []history.Op{drain(ok, true), during(drain(ok, false)), node(true, 1)}},
	{"an incarnation goes back", false, []history.Op{node(false, 2), node(false, 1)}},

	{"a quota", true, []history.Op{quota(history.CreateQuota, ok, 4, 2), quota(history.UpdateQuota, ok, 3, 0), quota(history.GetQuota, ok, 3, 2), quota(history.DeleteQuota, ok, 0, 0), noQuota(history.GetQuota), quota(history.CreateQuota, ok, 9, 1), quota(history.GetQuota, ok, 9, 1)}},
	{"a limit that nobody set", false, []history.Op{quota(history.CreateQuota, ok, 4, 2), quota(history.GetQuota, ok, 5, 2)}},
	{"a limit that is not seen", false, []history.Op{quota(history.CreateQuota, ok, 4, 2), quota(history.UpdateQuota, ok, 3, 1), quota(history.GetQuota, ok, 4, 1)}},
	{"a limit that was refused", false, []history.Op{quota(history.CreateQuota, ok, 4, 2), quota(history.UpdateQuota, unknown, 3, 1), quota(history.GetQuota, ok, 3, 1), quota(history.GetQuota, ok, 4, 2)}},
	{"a quota created twice", false, []history.Op{quota(history.CreateQuota, ok, 4, 2), quota(history.CreateQuota, ok, 4, 2)}},
	{"a quota that exists", true, []history.Op{quota(history.CreateQuota, unknown, 4, 2), existing(history.CreateQuota, "QUOTA_EXISTS"), quota(history.GetQuota, ok, 4, 2)}},
	{"a quota that exists and is missing", false, []history.Op{quota(history.CreateQuota, ok, 4, 2), noQuota(history.UpdateQuota)}},
	{"a quota that is missing and in use", false, []history.Op{quota(history.CreateQuota, ok, 4, 2), quota(history.DeleteQuota, ok, 0, 0), existing(history.DeleteQuota, "QUOTA_IN_USE")}},
	{"a deletion without an answer", true, []history.Op{quota(history.CreateQuota, ok, 4, 2), quota(history.DeleteQuota, unknown, 0, 0), quota(history.GetQuota, ok, 4, 2), existing(history.DeleteQuota, "QUOTA_IN_USE"), noQuota(history.GetQuota)}},
	{"a deleted quota is read", false, []history.Op{quota(history.CreateQuota, ok, 4, 2), quota(history.DeleteQuota, ok, 0, 0), quota(history.GetQuota, ok, 4, 2)}},

	{"a job", true, []history.Op{noJob, newJob(ok, false), seeJob("QUEUED", false), seeJob("RUNNING", false), job(ok, history.Suspend), seeJob("SUSPENDED", false), job(ok, history.Resume), seeJob("RUNNING", false), job(ok, history.Complete), seeJob("COMPLETED", false)}},
	{"a job that waits again", true, []history.Op{newJob(ok, false), seeJob("RUNNING", false), seeJob("QUEUED", false)}},
	{"a job that exists", true, []history.Op{newJob(ok, false), refusedJob(newJob(fail, false), "JOB_EXISTS")}},
	{"a job that exists and was never made", false, []history.Op{refusedJob(newJob(fail, false), "JOB_EXISTS")}},
	{"a job made twice", false, []history.Op{newJob(ok, false), newJob(ok, false)}},
	{"a job that is lost", false, []history.Op{newJob(ok, false), noJob}},
	{"a suspension that is not seen", false, []history.Op{newJob(ok, false), job(ok, history.Suspend), seeJob("RUNNING", false)}},
	{"a suspension that nobody asked for", false, []history.Op{newJob(ok, false), seeJob("SUSPENDED", false)}},
	{"a suspension without an answer", true, []history.Op{newJob(ok, false), job(unknown, history.Suspend), seeJob("RUNNING", false), seeJob("SUSPENDED", false)}},
	{"a suspension without an answer happens once", false, []history.Op{newJob(ok, false), job(unknown, history.Suspend), seeJob("SUSPENDED", false), job(ok, history.Resume), seeJob("SUSPENDED", false)}},
	{"a completed job is resumed", false, []history.Op{newJob(ok, false), job(ok, history.Complete), job(ok, history.Resume)}},
	{"a completed job cannot be suspended", true, []history.Op{newJob(ok, false), job(ok, history.Complete), refusedJob(job(fail, history.Suspend), "JOB_STATE")}},
	{"a live job cannot be suspended", false, []history.Op{newJob(ok, false), refusedJob(job(fail, history.Suspend), "JOB_STATE")}},
	{"a job that is deleted goes in its own time", true, []history.Op{newJob(ok, false), job(ok, history.Delete), seeJob("COMPLETED", true), refusedJob(newJob(fail, false), "JOB_EXISTS"), noJob, newJob(ok, false), seeJob("QUEUED", false)}},
	{"a deleted job comes back", false, []history.Op{newJob(ok, false), job(ok, history.Delete), noJob, seeJob("COMPLETED", true)}},
	{"a deleted job runs", false, []history.Op{newJob(ok, false), job(ok, history.Delete), seeJob("RUNNING", false)}},
	{"a deletion that arrives twice", true, []history.Op{newJob(ok, false), refusedJob(job(fail, history.Delete), "JOB_NOT_FOUND"), noJob}},
	{"a repeated submission makes no second job", true, []history.Op{newJob(ok, false), job(ok, history.Delete), newJob(ok, true), noJob}},
	{"the answer of a submission was lost", true, []history.Op{newJob(unknown, false), newJob(ok, true), seeJob("RUNNING", false)}},

	{"a turn that was asked for twice", true, []history.Op{turn(unknown, false), turn(ok, true, 4), turn(ok, true, 4)}},
	{"another turn for the same request", false, []history.Op{turn(ok, false, 4), turn(ok, true, 5)}},

	{"a trajectory", true, []history.Op{open("PENDING", ""), look("OPEN", "n"), shut(ok, "CLOSING"), look("CLOSING", "n"), look("CLOSED", "n"), shut(ok, "CLOSED")}},
	{"a trajectory moves", false, []history.Op{open("OPEN", "n"), look("OPEN", "m")}},
	{"a closed trajectory opens", false, []history.Op{shut(ok, "CLOSED"), look("OPEN", "n")}},
	{"a close that is not seen", false, []history.Op{shut(ok, "OPEN")}},
	{"a close without an answer", true, []history.Op{shut(unknown, ""), look("OPEN", "n"), look("CLOSED", "n")}},
	{"another end of a trajectory", false, []history.Op{look("LOST", "n"), look("CLOSED", "n")}},
}

// TestObjects: calls follow each other unless their times say that they overlap.
func TestObjects(t *testing.T) {
	for _, c := range histories {
		t.Run(c.name, func(t *testing.T) {
			ops := slices.Clone(c.ops)
			for i := range ops {
				ops[i].End = int64(10*i + 15)
				if ops[i].Start == 0 {
					ops[i].Start = int64(10*i + 10)
				}
			}
			v := verdictOf(t, "linearizable", &history.Record{Ops: ops, Duration: 1000})
			if legal := len(v.Violations) == 0; legal != c.legal || v.Checked == 0 {
				t.Errorf("legal %v, want %v: %d checked, %q", legal, c.legal, v.Checked, v.Violations)
			}
		})
	}
}

// TestWhatIsNumberedOnlyGrows: over all objects, in the order of time.
func TestWhatIsNumberedOnlyGrows(t *testing.T) {
	op := func(verb history.Verb, start, end int64, server string, revision uint64, ids ...uint64) history.Op {
		return history.Op{Verb: verb, Start: start, End: end, Server: server, Revision: revision, IDs: ids, Outcome: history.OK, State: "QUEUED"}
	}
	for _, c := range []struct {
		name  string
		legal bool
		ops   []history.Op
	}{
		{"grows", true, []history.Op{op(history.Get, 1, 2, "s1", 5), op(history.Get, 3, 4, "s2", 5), op(history.List, 5, 6, "s2", 6)}},
		{"overlaps", true, []history.Op{op(history.Get, 1, 4, "s1", 6), op(history.Get, 3, 5, "s2", 5)}},
		{"a stale read", false, []history.Op{op(history.Get, 1, 2, "s1", 6), op(history.List, 3, 4, "s2", 5)}},
		{"a read that may be stale", true, []history.Op{op(history.Get, 1, 2, "s1", 6), op(history.GetStale, 3, 4, "s2", 5)}},
		{"behind a long call", false, []history.Op{op(history.Get, 1, 20, "s1", 9), op(history.Get, 2, 3, "s1", 6), op(history.Get, 4, 5, "s2", 5)}},
		{"IDs given again", false, []history.Op{op(history.Submit, 1, 2, "s1", 0, 6, 7), op(history.Submit, 3, 4, "s1", 0, 7)}},
		{"turns numbered again", false, []history.Op{op(history.Acquire, 1, 2, "s1", 0, 7), op(history.Acquire, 3, 4, "s1", 0, 7)}},
		{"IDs that follow", true, []history.Op{op(history.Submit, 1, 2, "s1", 0, 6, 7), op(history.Submit, 3, 4, "s1", 0, 8)}},
	} {
		t.Run(c.name, func(t *testing.T) {
			for i := range c.ops {
				c.ops[i].Target = uint64(i + 1)
			}
			v := verdictOf(t, "linearizable", &history.Record{Ops: c.ops})
			if legal := len(v.Violations) == 0; legal != c.legal {
				t.Errorf("legal %v, want %v: %q", legal, c.legal, v.Violations)
			}
		})
	}
}

// drained is a node under several clients, of whose calls so many in a hundred
// have no answer: half of these never happen, the others up to three seconds
// after they began.
func drained(seed uint64, n, unknown int) *history.Record {
	draw := rand.New(rand.NewPCG(seed, 1))
	ops, effects := make([]history.Op, n), make([]int64, n)
	for i := range ops {
		start := int64(i)*second/10 + draw.Int64N(second/10)
		op := history.Op{Client: i % 4, Verb: history.GetNode, Node: "n", Start: start, End: start + 1 + draw.Int64N(second/5), Outcome: history.OK}
		effects[i] = op.Start + draw.Int64N(op.End-op.Start)
		if draw.IntN(100) < 45 {
			op.Verb, op.Draining = history.Drain, draw.IntN(4) == 0
			if draw.IntN(100) < unknown {
				op.Outcome = history.Unknown
				if effects[i] = op.Start + draw.Int64N(3*second); draw.IntN(2) == 0 {
					effects[i] = -1
				}
			}
		}
		ops[i] = op
	}
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(effects[a], effects[b]) })
	draining := false
	for _, i := range order {
		switch {
		case effects[i] < 0:
		case ops[i].Verb == history.Drain:
			draining = ops[i].Draining
		default:
			ops[i].Draining = draining
		}
	}
	return &history.Record{Ops: ops}
}

// TestCallsWithoutAnAnswerAreSearchedThrough: each of them doubles what has to be
// searched in the worst case. As many as a run under faults has must not matter.
func TestCallsWithoutAnAnswerAreSearchedThrough(t *testing.T) {
	for seed := range uint64(20) {
		begin := time.Now()
		v := verdictOf(t, "linearizable", drained(seed, 600, 20))
		if len(v.Violations) > 0 {
			t.Errorf("seed %d after %v: %q", seed, time.Since(begin), v.Violations)
		}
	}
}
