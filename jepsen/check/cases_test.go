package check

import (
	"slices"
	"testing"
	"time"

	logv1 "rota/api/gen/log/v1"
	"rota/jepsen/history"
)

// caseOf changes a healthy record. A broken one names the checker that must
// object, and words of what it says.
type caseOf struct {
	checker, name, want string
	change              func(t *testing.T, r *history.Record)
}

// pick returns the first item that fits, to change it where it stands.
func pick[T any](t *testing.T, list []T, fits func(*T) bool) *T {
	t.Helper()
	for i := range list {
		if fits(&list[i]) {
			return &list[i]
		}
	}
	t.Fatal("the healthy record has nothing that this case could change")
	return nil
}

func submitted(op *history.Op) bool {
	return op.Verb == history.Submit && op.Outcome == history.OK && !op.Replayed
}

func replayedSubmit(op *history.Op) bool {
	return op.Verb == history.Submit && op.Outcome == history.OK && op.Replayed
}

func created(verb history.Verb) func(*history.Op) bool {
	return func(op *history.Op) bool { return op.Verb == verb && op.Outcome == history.OK && !op.Replayed }
}

func succeeded(a *history.Action) bool { return a.State == "SUCCEEDED" }

// once is an execution on cores of an action that may be repeated or not, and was
// not.
func once(r *history.Record, retry bool) func(*history.Execution) bool {
	return func(x *history.Execution) bool {
		n := 0
		for _, y := range r.Executions {
			if y.Action == x.Action {
				n++
			}
		}
		return n == 1 && x.Complete && len(x.Cores) > 0 && requestsOf(r.Ops)[x.RequestID].retry == retry
	}
}

// withoutLogs is a record of servers that had compacted their logs.
func withoutLogs(r *history.Record) {
	for i := range r.Logs {
		r.Logs[i].Entries = r.Logs[i].Entries[30:]
		r.Logs[i].First = 31
	}
}

// rewrite changes an entry with a command that fits, on all servers.
func rewrite(t *testing.T, r *history.Record, change func(*logv1.Entry) bool) {
	t.Helper()
	entry := pick(t, r.Logs[0].Entries, func(e *history.Entry) bool {
		var decoded logv1.Entry
		if e.Data == nil || decoded.UnmarshalVT(e.Data) != nil || !change(&decoded) {
			return false
		}
		data, err := decoded.MarshalVT()
		e.Data = data
		return err == nil
	})
	for i := range r.Logs {
		r.Logs[i].Entries[entry.Index-1] = *entry
	}
}

var broken = []caseOf{
	{"abuse", "an operator's call of a client", "1 things were achieved", func(_ *testing.T, r *history.Record) {
		r.Abuse.Achieved = []string{"RemovePeer was answered ok"}
	}},
	{"abuse", "leaders that are deposed all the time", "leaders did not stay in office", func(_ *testing.T, r *history.Record) {
		r.Abuse.After.Term += officesMax + 1
	}},
	{"abuse", "no leader in the end", "leaders did not stay in office", func(_ *testing.T, r *history.Record) {
		r.Abuse.After.LeaderID = ""
	}},
	{"latency", "a leader that was deposed", "the leader did not stay in office", func(_ *testing.T, r *history.Record) {
		r.Abuse.After.Term++
	}},
	{"abuse", "a server of two gigabytes", "s1 has had 2048 MiB of memory", func(_ *testing.T, r *history.Record) {
		r.Abuse.MemoryPeaks["s1"] = 2 << 30
	}},
	{"abuse", "an ordinary action that was killed", "did not succeed in its only attempt", func(_ *testing.T, r *history.Record) {
		r.Turnarounds[5].State = "FAILED"
	}},
	{"abuse", "an ordinary action that was run twice", "did not succeed in its only attempt", func(_ *testing.T, r *history.Record) {
		r.Turnarounds[5].Attempt = 2
	}},
	{"abuse", "an ordinary submission that was refused", "did not succeed in its only attempt", func(_ *testing.T, r *history.Record) {
		r.Turnarounds[5].Error = "resource_exhausted"
	}},
	{"latency", "ordinary actions that take four times as long", "more than 3 times as long", func(_ *testing.T, r *history.Record) {
		for i := range r.Turnarounds[turnaroundsMin:] {
			t := &r.Turnarounds[turnaroundsMin+i]
			t.End += t.End - t.Start
		}
	}},
	{"latency", "too few to tell", "of each are wanted", func(_ *testing.T, r *history.Record) {
		r.Turnarounds = r.Turnarounds[1:]
	}},
	{"ends", "an end that was never reported", "action 1 is told as RUNNING", func(_ *testing.T, r *history.Record) {
		r.Ends[0].Got = "RUNNING"
	}},
	{"faults", "did not happen", "did not take effect", func(_ *testing.T, r *history.Record) { r.Faults[0].Happened = "" }},
	{"faults", "one of two", "disk-full", func(_ *testing.T, r *history.Record) {
		r.Faults = append(r.Faults, history.Fault{Name: "disk-full", Start: second})
	}},
	{"rate", "too few", "at least 1.0 are wanted", func(_ *testing.T, r *history.Record) { r.Ops = r.Ops[:3] }},
	{"rate", "no answers", "0 calls were answered", func(_ *testing.T, r *history.Record) {
		for i := range r.Ops {
			r.Ops[i].Outcome = history.Unknown
		}
	}},
	{"rate", "refused connections", "0 calls were answered", func(_ *testing.T, r *history.Record) {
		for i := range r.Ops {
			r.Ops[i].Outcome, r.Ops[i].Error = history.Fail, "unavailable: dial tcp: connection refused"
		}
	}},
	{"rate", "servers without a leader", "0 calls were answered", func(_ *testing.T, r *history.Record) {
		for i := range r.Ops {
			r.Ops[i].Outcome, r.Ops[i].Error = history.Fail, "NO_LEADER"
		}
	}},
	{"recovery", "no commit", "the first write after the fault agent-kill was healed at", func(_ *testing.T, r *history.Record) {
		silent(r, r.Faults[0].End, r.Duration)
	}},
	{"recovery", "late commit", "took 11.", func(_ *testing.T, r *history.Record) {
		silent(r, r.Faults[0].End, r.Faults[0].End+11*second)
	}},
	{"recovery", "late commit after one of two faults", "the first write after the fault pause was healed at", func(_ *testing.T, r *history.Record) {
		at := r.Faults[0].End + second
		r.Faults = append(r.Faults, history.Fault{Name: "pause", Start: at, End: at + 1, Happened: "stood still"})
		silent(r, at, at+11*second)
	}},
	{"recovery", "late commit, members were back late", "took 11.", func(_ *testing.T, r *history.Record) {
		r.Faults[0].Whole = r.Faults[0].End + 11*second
		silent(r, r.Faults[0].End, r.Faults[0].Whole)
	}},
	{"recovery", "never settled", "the end of all actions after the load had ended", func(_ *testing.T, r *history.Record) { r.Healing.Settled = 0 }},
	{"recovery", "late end", "took 61.000 s", func(_ *testing.T, r *history.Record) { r.Healing.Settled = r.Healing.Stopped + 61*second }},
	{"recovery", "leak", "cgroup /rota/a7", func(_ *testing.T, r *history.Record) { r.Healing.Left = []string{"cgroup /rota/a7"} }},
	{"recovery", "quarantine", "still quarantined", func(_ *testing.T, r *history.Record) { r.Hashes[1].Quarantined = true }},

	{"leaders", "two", "term 1 has two leaders, s1 and s3", func(_ *testing.T, r *history.Record) {
		r.Samples[4].LeaderID, r.Samples[1].LeaderID = "s3", "s3"
	}},
	{"leaders", "back in the log", "goes back from term 2", func(_ *testing.T, r *history.Record) {
		r.Logs[2].Entries[len(r.Logs[2].Entries)-1].Term = 1
	}},
	{"hashes", "while it runs", "state differs", func(_ *testing.T, r *history.Record) { r.Samples[10].Hash = "00000000000000aa" }},
	{"hashes", "in the end", "state differs", func(_ *testing.T, r *history.Record) { r.Hashes[2].Hash = "00000000000000aa" }},
	{"hashes", "not together", "did not come to the same entry", func(_ *testing.T, r *history.Record) { r.Hashes[2].HashIndex-- }},
	{"hashes", "one is never compared", "the state of s3 was never compared", func(_ *testing.T, r *history.Record) {
		r.Samples = slices.DeleteFunc(r.Samples, func(s history.Sample) bool { return s.Server == "s3" })
		r.Hashes = r.Hashes[:2]
	}},
	{"members", "unasked", "nobody asked for that of s4", func(_ *testing.T, r *history.Record) {
		addVoters(r, []string{"s1", "s2", "s3", "s4"})
	}},
	{"members", "refused and done", "nobody asked for that of s4", func(_ *testing.T, r *history.Record) {
		addVoters(r, []string{"s1", "s2", "s3", "s4"})
		r.Members = []history.Member{{Change: "add-voter", ID: "s4", Outcome: history.Fail}}
	}},
	{"members", "two at once", "changes more than one voter", func(_ *testing.T, r *history.Record) {
		addVoters(r, []string{"s1", "s2", "s4"})
		r.Members = []history.Member{{Change: "add-voter", ID: "s4", Outcome: history.OK}, {Change: "remove", ID: "s3", Outcome: history.OK}}
	}},
	{"members", "acknowledged and not done", "remove of s3 was acknowledged", func(_ *testing.T, r *history.Record) {
		r.Members = []history.Member{{Change: "remove", ID: "s3", Outcome: history.OK}}
	}},
	{"logs", "other data", "the logs of s1 and s2 differ at 1 entries", func(_ *testing.T, r *history.Record) {
		e := &r.Logs[1].Entries[20]
		e.Data = append(slices.Clone(e.Data), 0)
	}},
	{"logs", "other term of what is committed", "differ at 3 entries", func(_ *testing.T, r *history.Record) {
		for i := range 3 {
			r.Logs[2].Entries[len(r.Logs[2].Entries)-1-i].Term = 9
		}
	}},
	{"logs", "other voters", "differ at 1 entries", func(_ *testing.T, r *history.Record) { r.Logs[0].Entries[0].Voters = []string{"s1"} }},

	{"files", "a mark is gone", "did not find in the directory of trajectory 1", func(t *testing.T, r *history.Record) {
		x := pick(t, r.Executions, func(x *history.Execution) bool { return len(x.Found) > 1 })
		x.Found = x.Found[1:]
	}},
	{"files", "the directory is empty again", "did not find in the directory of trajectory 1", func(t *testing.T, r *history.Record) {
		pick(t, r.Executions, func(x *history.Execution) bool { return len(x.Found) > 0 }).Found = nil
	}},

	{"at-most-one", "overlap of attempts", "two live executions", func(t *testing.T, r *history.Record) {
		x := pick(t, r.Executions, once(r, true))
		y := *x
		y.Attempt, y.Start, y.End = 2, (x.Start+x.End)/2, x.End+second
		r.Executions = append(r.Executions, y)
	}},
	{"at-most-one", "overlap with one that never ended", "two live executions", func(t *testing.T, r *history.Record) {
		x := pick(t, r.Executions, once(r, true))
		y := *x
		y.Attempt, y.Start = 2, x.End+second
		x.End = 0
		r.Executions = append(r.Executions, y)
	}},
	{"at-most-one", "again without retry", "may be executed once and was executed 2 times", func(t *testing.T, r *history.Record) {
		y := *pick(t, r.Executions, once(r, false))
		y.Attempt, y.Start, y.End = 2, y.End+second, y.End+2*second
		r.Executions = append(r.Executions, y)
	}},
	{"at-most-one", "one attempt twice", "was executed twice", func(t *testing.T, r *history.Record) {
		y := *pick(t, r.Executions, once(r, true))
		y.Start, y.End = y.End+second, y.End+2*second
		r.Executions = append(r.Executions, y)
	}},
	{"at-most-one", "old attempt after new", "began after attempt 2 had", func(t *testing.T, r *history.Record) {
		x := pick(t, r.Executions, once(r, true))
		y := *x
		x.Attempt = 2
		y.Start, y.End = y.End+second, y.End+2*second
		r.Executions = append(r.Executions, y)
	}},
	{"at-most-one", "unknown submission", "nobody submitted", func(_ *testing.T, r *history.Record) { r.Executions[3].RequestID = "other" }},
	{"at-most-one", "refused submission", "its submission was refused", func(t *testing.T, r *history.Record) {
		id := pick(t, r.Executions, once(r, true)).RequestID
		for i := range r.Ops {
			if r.Ops[i].RequestID == id {
				r.Ops[i].Outcome = history.Fail
			}
		}
	}},
	{"at-most-one", "another's action", "for a request that has other actions", func(_ *testing.T, r *history.Record) {
		r.Executions[0].RequestID = r.Executions[len(r.Executions)-1].RequestID
	}},
	{"at-most-one", "success without work", "did not complete its work", func(t *testing.T, r *history.Record) {
		id := pick(t, r.Final, succeeded).ID
		pick(t, r.Executions, func(x *history.Execution) bool { return x.Action == id && x.Complete }).Complete = false
	}},
	{"at-most-one", "success without execution", "did not complete its work", func(t *testing.T, r *history.Record) {
		id := pick(t, r.Final, succeeded).ID
		r.Executions = slices.DeleteFunc(r.Executions, func(x history.Execution) bool { return x.Action == id })
	}},
	{"at-most-one", "alive after its end was told", "was alive after its end", func(t *testing.T, r *history.Record) {
		x := pick(t, r.Executions, once(r, false))
		x.Alive, x.End = x.Alive+2*second, x.End+2*second
	}},
	{"at-most-one", "still alive when the record ends", "was alive after its end", func(t *testing.T, r *history.Record) {
		pick(t, r.Executions, once(r, false)).End = 0
	}},
	{"at-most-one", "never granted", "executed and never granted", func(t *testing.T, r *history.Record) {
		y := *pick(t, r.Executions, once(r, true))
		y.Attempt, y.Start, y.End = 2, y.End+second, y.End+2*second
		r.Executions = append(r.Executions, y)
	}},
	{"at-most-one", "more attempts than it had, compacted logs", "and the action had 1", func(t *testing.T, r *history.Record) {
		withoutLogs(r)
		y := *pick(t, r.Executions, once(r, true))
		y.Attempt, y.Start, y.End = 2, y.End+second, y.End+2*second
		r.Executions = append(r.Executions, y)
	}},
	{"at-most-one", "on another node", "was granted to n1", func(t *testing.T, r *history.Record) {
		pick(t, r.Executions, func(x *history.Execution) bool { return x.Node == "n1" }).Node = "n3"
	}},
	{"at-most-one", "in an old incarnation", "in incarnation", func(_ *testing.T, r *history.Record) { r.Executions[0].Incarnation = 77 }},

	{"cores", "two users", "has two users", func(t *testing.T, r *history.Record) {
		x := pick(t, r.Executions, once(r, true))
		y := *x
		y.Action, y.Start, y.End = 9999, (x.Start+x.End)/2, x.End+second
		r.Executions = append(r.Executions, y)
	}},
	{"cores", "a short one below a long one", "has two users", func(t *testing.T, r *history.Record) {
		// The long one spans two short ones: the second is not beside the long one
		// in the order of starts.
		x := pick(t, r.Executions, once(r, true))
		y, z := *x, *x
		x.End = x.Start + 100*second
		y.Action, y.Start, y.End, y.Cores = 9998, x.Start+second, x.Start+2*second, []int{x.Cores[0] + 4}
		z.Action, z.Start, z.End = 9999, x.Start+3*second, x.Start+4*second
		r.Executions = append(r.Executions, y, z)
	}},
	{"cores", "two users of what is not pinned", "has two users", func(t *testing.T, r *history.Record) {
		pick(t, r.Executions, once(r, true)).End += 20 * second
		for i := range r.Executions {
			r.Executions[i].Cores = nil
		}
	}},
	{"cores", "not those that were granted", "and was granted", func(_ *testing.T, r *history.Record) { r.Executions[2].Cores = []int{40, 41} }},

	{"widths", "more cores than it can use", "with 2 cores and can use [1]", func(t *testing.T, r *history.Record) {
		pick(t, r.Executions, func(x *history.Execution) bool { return len(x.Cores) == 2 }).Asked.Cores = []int{1}
	}},
	{"widths", "a number of cores between", "with 2 cores and can use [1 4]", func(t *testing.T, r *history.Record) {
		pick(t, r.Executions, func(x *history.Execution) bool { return len(x.Cores) == 2 }).Asked.Cores = []int{1, 4}
	}},
	{"widths", "told another number of cores", "and was told that it has 1", func(t *testing.T, r *history.Record) {
		pick(t, r.Executions, func(x *history.Execution) bool { return len(x.Cores) == 2 }).Width = 1
	}},
	{"widths", "by the log, on a node that does not pin", "and was told that it has 1", func(t *testing.T, r *history.Record) {
		x := pick(t, r.Executions, func(x *history.Execution) bool { return len(x.Cores) == 2 })
		x.Cores, x.Width = nil, 1
	}},
	{"widths", "told that it has cores", "with 1 cores and can use [0]", func(t *testing.T, r *history.Record) {
		pick(t, r.Executions, onGPUs).Width = 2
	}},
	{"widths", "a number of GPUs between", "with 2 GPUs and can use [1 4]", func(t *testing.T, r *history.Record) {
		pick(t, r.Executions, func(x *history.Execution) bool { return len(x.GPUs) == 2 }).Asked.GPUs = []int{1, 4}
	}},
	{"widths", "GPUs that it has no use for", "can use []", func(t *testing.T, r *history.Record) {
		pick(t, r.Executions, onGPUs).Asked.GPUs = nil
	}},
	{"widths", "no GPUs", "with 0 GPUs", func(t *testing.T, r *history.Record) { pick(t, r.Executions, onGPUs).GPUs = nil }},

	{"gpus", "two users", "has two users", func(t *testing.T, r *history.Record) {
		x := pick(t, r.Executions, onGPUs)
		y := *x
		y.Action, y.Start, y.End = 9999, (x.Start+x.End)/2, x.End+second
		r.Executions = append(r.Executions, y)
	}},
	{"gpus", "not those that were granted", "and was granted", func(t *testing.T, r *history.Record) {
		for i, gpu := range pick(t, r.Executions, onGPUs).GPUs {
			pick(t, r.Executions, onGPUs).GPUs[i] = 8 + gpu
		}
	}},
	{"gpus", "not aligned", "GPUs [1 2], which are no chunk", func(t *testing.T, r *history.Record) { pick(t, r.Executions, onGPUs).GPUs = []int{1, 2} }},
	{"gpus", "with a gap", "GPUs [0 2], which are no chunk", func(t *testing.T, r *history.Record) { pick(t, r.Executions, onGPUs).GPUs = []int{0, 2} }},
	{"gpus", "three of them", "GPUs [0 1 2], which are no chunk", func(t *testing.T, r *history.Record) { pick(t, r.Executions, onGPUs).GPUs = []int{0, 1, 2} }},

	{"quotas", "one that does not end", "of quota \"browser\" are in use at", func(t *testing.T, r *history.Record) {
		pick(t, r.Executions, using("browser")).End = 0
	}},
	{"quotas", "the sum of many", "4 units of key 1", func(t *testing.T, r *history.Record) {
		x := pick(t, r.Executions, using("browser"))
		x.Uses = []history.Use{{Quota: "browser", Units: 1, Key: 1}}
		for range quotaLimit {
			r.Executions = append(r.Executions, *x)
		}
	}},
	{"quotas", "told no key", "was told to use key 0", func(t *testing.T, r *history.Record) {
		pick(t, r.Executions, using("browser")).Uses[0].Key = 0
	}},
	{"quotas", "a key that there is not", "key 3 of quota \"browser\", which has 2", func(t *testing.T, r *history.Record) {
		pick(t, r.Executions, using("browser")).Uses[0].Key = 3
	}},
	{"quotas", "nobody made it", "which nobody has created", func(_ *testing.T, r *history.Record) {
		r.Ops = slices.DeleteFunc(r.Ops, func(op history.Op) bool { return op.Verb == history.CreateQuota })
	}},
	{"quotas", "a lower limit", "its limit is 1", func(_ *testing.T, r *history.Record) {
		for i := range r.Ops {
			r.Ops[i].Limit = min(r.Ops[i].Limit, 1)
		}
	}},
	{"windows", "a longer window", "of quota \"search\" are in use at", func(_ *testing.T, r *history.Record) { longerWindow(r) }},
	{"windows", "a longer window, clocks were wrong before", "of quota \"search\" are in use at", func(_ *testing.T, r *history.Record) {
		longerWindow(r)
		r.Faults = append(r.Faults, history.Fault{Name: "clock-drift", Start: 1, End: 2, Happened: "off by 1s"})
	}},
	{"windows", "an end that was known too late", "of quota \"search\" are in use at", func(t *testing.T, r *history.Record) {
		for i := range r.Executions {
			if x := &r.Executions[i]; using("search")(x) {
				x.Alive, x.End = x.Alive+2*second, x.End+2*second
			}
		}
	}},
	{"windows", "a limit that was lowered before", "its limit is 1", func(t *testing.T, r *history.Record) {
		op := *pick(t, r.Ops, func(op *history.Op) bool { return op.Verb == history.CreateQuota && op.Quota == "search" })
		op.Verb, op.Limit, op.Start, op.End = history.UpdateQuota, 1, op.End+1, op.End+2
		r.Ops = append(r.Ops, op)
	}},
	{"windows", "told no key", "was told to use key 0", func(t *testing.T, r *history.Record) {
		pick(t, r.Executions, using("search")).Uses[0].Key = 0
	}},

	{"turns", "two holders of a group", "node group group-a has two holders", func(t *testing.T, r *history.Record) {
		h := pick(t, r.Holdings, yielded("job-a"))
		r.Holdings = append(r.Holdings, history.Holding{Turn: 999, Token: 999, Group: h.Group, Deployment: "job-c/actor", Start: h.Start + 1, End: h.End})
	}},
	{"turns", "a short holder below a long one", "has two holders", func(_ *testing.T, r *history.Record) {
		r.Holdings[0].End = r.Holdings[len(r.Holdings)-1].End
	}},
	{"turns", "a job on two groups", "job job-a has two holders", func(t *testing.T, r *history.Record) {
		h := pick(t, r.Holdings, yielded("job-a"))
		r.Holdings = append(r.Holdings, history.Holding{Turn: 999, Token: 999, Group: "group-c", Deployment: "job-a/critic", Start: h.Start + 1, End: h.End})
	}},
	{"turns", "a token twice", "the token of node group group-a does not grow", func(t *testing.T, r *history.Record) {
		pick(t, r.Holdings[3:], yielded("job-a")).Token = pick(t, r.Holdings, yielded("job-a")).Token
	}},
	{"turns", "not in their order", "not held in the order", func(t *testing.T, r *history.Record) {
		a, b := pick(t, r.Holdings, yielded("job-a")), pick(t, r.Holdings[3:], yielded("job-a"))
		a.Turn, b.Turn = b.Turn, a.Turn
	}},
	{"turns", "never granted", "was held and never granted", func(_ *testing.T, r *history.Record) { r.Holdings[4].Turn = 999 }},
	{"turns", "another group", "was granted to job-a/actor on group-a", func(_ *testing.T, r *history.Record) { r.Holdings[4].Group = "group-c" }},
	{"turns", "lost", "was acknowledged and is lost", func(_ *testing.T, r *history.Record) { r.Turns = r.Turns[1:] }},
	{"turns", "lost, compacted logs", "was acknowledged and is lost", func(_ *testing.T, r *history.Record) {
		withoutLogs(r)
		r.Turns = r.Turns[1:]
	}},
	{"turns", "never ended", "never ended", func(_ *testing.T, r *history.Record) { r.Turns[3].State = "HELD" }},
	{"turns", "an end that the log has not", "by the log it is", func(_ *testing.T, r *history.Record) { r.Turns[3].State = "CANCELED" }},
	{"turns", "yielded and lost", "was yielded, as its holder was told, and is LOST", func(t *testing.T, r *history.Record) {
		id := pick(t, r.Holdings, yielded("job-a")).Turn
		pick(t, r.Turns, func(turn *history.Turn) bool { return turn.ID == id }).State = "LOST"
	}},

	{"nothing-lost", "a turn without an entry", "no committed entry accepts it", func(_ *testing.T, r *history.Record) {
		r.Ops = append(r.Ops, history.Op{Verb: history.Acquire, RequestID: "never", Outcome: history.OK, IDs: []uint64{1}})
	}},
	{"nothing-lost", "gone", "was acknowledged and is lost", func(_ *testing.T, r *history.Record) { r.Final = r.Final[1:] }},
	{"nothing-lost", "gone, compacted logs", "was acknowledged and is lost", func(_ *testing.T, r *history.Record) {
		withoutLogs(r)
		r.Final = r.Final[1:]
	}},
	{"nothing-lost", "all gone", "there is no list", func(_ *testing.T, r *history.Record) { r.Final = nil }},
	{"nothing-lost", "never ended", "never ended", func(_ *testing.T, r *history.Record) { r.Final[5].State = "RUNNING" }},
	{"nothing-lost", "twice", "was carried out twice", func(t *testing.T, r *history.Record) {
		a := *pick(t, r.Final, succeeded)
		a.ID = 9999
		r.Final = append(r.Final, a)
	}},
	{"nothing-lost", "other IDs", "with different IDs", func(t *testing.T, r *history.Record) {
		op := *pick(t, r.Ops, submitted)
		op.IDs, op.Replayed = []uint64{op.IDs[0] + 1}, true
		r.Ops = append(r.Ops, op)
	}},
	{"nothing-lost", "first twice", "was accepted twice", func(t *testing.T, r *history.Record) {
		r.Ops = append(r.Ops, *pick(t, r.Ops, submitted))
	}},
	{"nothing-lost", "refused and done", "was refused and carried out", func(t *testing.T, r *history.Record) {
		pick(t, r.Ops, func(op *history.Op) bool {
			return submitted(op) && len(requestsOf(r.Ops)[op.RequestID].ops) == 1
		}).Outcome = history.Fail
	}},
	{"nothing-lost", "acknowledged without an entry", "no committed entry accepts it", func(_ *testing.T, r *history.Record) {
		r.Ops = append(r.Ops, history.Op{Verb: history.Submit, RequestID: "never", Outcome: history.OK, IDs: []uint64{1}})
	}},
	{"nothing-lost", "an opening without an entry", "no committed entry accepts it", func(_ *testing.T, r *history.Record) {
		r.Ops = append(r.Ops, history.Op{Verb: history.OpenTrajectory, RequestID: "never", Outcome: history.OK, IDs: []uint64{1}})
	}},
	{"nothing-lost", "a rollout without an entry", "no committed entry accepts it", func(_ *testing.T, r *history.Record) {
		r.Ops = append(r.Ops, history.Op{Verb: history.CreateRollout, RequestID: "never", Outcome: history.OK, IDs: []uint64{1}})
	}},
	{"nothing-lost", "a member without an entry", "no committed entry accepts it", func(_ *testing.T, r *history.Record) {
		r.Ops = append(r.Ops, history.Op{Verb: history.OpenMember, RequestID: "never", Target: 1, Outcome: history.OK, IDs: []uint64{1}})
	}},
	{"nothing-lost", "an end that was told is another", "ended as SUCCEEDED, and is LOST", func(t *testing.T, r *history.Record) {
		pick(t, r.Final, succeeded).State = "LOST"
	}},
	{"nothing-lost", "an end that the log has not", "by the log it is SUCCEEDED", func(t *testing.T, r *history.Record) {
		r.Watch = nil
		a := pick(t, r.Final, succeeded)
		r.Ops = slices.DeleteFunc(r.Ops, func(op history.Op) bool { return op.Target == a.ID })
		a.State = "LOST"
	}},

	{"replay", "another hash", "the log gives the hash", func(_ *testing.T, r *history.Record) {
		for i := range r.Hashes {
			r.Hashes[i].Hash = "00000000000000aa" // all servers are wrong alike
		}
	}},
	{"replay", "another log", "the log gives the hash", func(t *testing.T, r *history.Record) {
		rewrite(t, r, func(e *logv1.Entry) bool {
			s := e.Commands[0].GetSubmitActions()
			if s != nil {
				s.Actions[0].CoresMax++
			}
			return s != nil
		})
	}},
	{"replay", "not an entry", "cannot be decoded", func(_ *testing.T, r *history.Record) {
		for i := range r.Logs {
			r.Logs[i].Entries[20].Data = []byte{0xff}
		}
	}},

	{"linearizable", "a read of what was not yet", "", func(t *testing.T, r *history.Record) {
		op := pick(t, r.Ops, func(op *history.Op) bool { return op.Verb == history.Get && op.State == "SUCCEEDED" })
		again := *op
		again.Start, again.End, again.State = op.End+second, op.End+2*second, "QUEUED"
		r.Ops = append(r.Ops, again)
	}},
	{"linearizable", "an acknowledged action is not found", "", func(t *testing.T, r *history.Record) {
		op := pick(t, r.Ops, submitted)
		r.Ops = append(r.Ops, history.Op{
			Verb: history.Get, Target: op.IDs[0], Start: op.End + 1, End: op.End + second, Outcome: history.Fail, Error: "ACTION_NOT_FOUND",
		})
	}},
	{"linearizable", "a request accepted twice", "", func(t *testing.T, r *history.Record) {
		op := *pick(t, r.Ops, submitted)
		op.Start, op.End, op.IDs = op.End+1, op.End+second, []uint64{9998}
		r.Ops = append(r.Ops, op)
	}},
	{"linearizable", "a rollout created twice", "the calls to request coder", func(t *testing.T, r *history.Record) {
		op := *pick(t, r.Ops, created(history.CreateRollout))
		op.Start, op.End, op.IDs = op.End+1, op.End+second, []uint64{98}
		r.Ops = append(r.Ops, op)
	}},
	{"linearizable", "a member opened twice", "the calls to request coder", func(t *testing.T, r *history.Record) {
		op := *pick(t, r.Ops, created(history.OpenMember))
		op.Start, op.End, op.IDs = op.End+1, op.End+second, []uint64{98}
		r.Ops = append(r.Ops, op)
	}},
	{"linearizable", "a member that is not there", "the calls to trajectory", func(t *testing.T, r *history.Record) {
		op := pick(t, r.Ops, created(history.OpenMember))
		r.Ops = append(r.Ops, history.Op{
			Verb: history.GetTrajectory, Target: op.IDs[0], Start: op.End + 1, End: op.End + second, Outcome: history.Fail, Error: "TRAJECTORY_NOT_FOUND",
		})
	}},
	{"linearizable", "an old rollout ID", "the rollout ID goes back", func(t *testing.T, r *history.Record) {
		op := *pick(t, r.Ops, created(history.CreateRollout))
		op.RequestID, op.Start, op.End = "other", op.End+100*second, op.End+101*second
		r.Ops = append(r.Ops, op)
	}},
	{"linearizable", "a list without a live action", "has other live actions than the log", func(t *testing.T, r *history.Record) {
		op := pick(t, r.Ops, func(op *history.Op) bool { return op.Verb == history.List && len(op.IDs) > 1 })
		op.IDs = op.IDs[1:]
	}},
	{"linearizable", "a list that ends too early", "which is live by the log", func(t *testing.T, r *history.Record) {
		op := pick(t, r.Ops, func(op *history.Op) bool { return op.Verb == history.List && len(op.IDs) > 0 })
		op.IDs = op.IDs[:len(op.IDs)-1]
	}},
	{"linearizable", "a list with an action that has ended", "has other live actions than the log", func(t *testing.T, r *history.Record) {
		op := pick(t, r.Ops, func(op *history.Op) bool { return op.Verb == history.List && len(op.IDs) > 0 && op.IDs[0] > 1 })
		op.IDs = slices.Insert(op.IDs, 0, 1)
	}},
	{"linearizable", "a drain that is not seen", "", func(t *testing.T, r *history.Record) {
		pick(t, r.Ops, func(op *history.Op) bool { return op.Verb == history.GetNode && op.Draining }).Draining = false
	}},
}

// silent has no call that began in a time answered.
func silent(r *history.Record, from, to int64) {
	for i := range r.Ops {
		if op := &r.Ops[i]; op.Start >= from && op.Start < to {
			op.Outcome = history.Unknown
		}
	}
}

func onGPUs(x *history.Execution) bool { return len(x.GPUs) > 0 }

func using(quota string) func(*history.Execution) bool {
	return func(x *history.Execution) bool { return len(x.Uses) > 0 && x.Uses[0].Quota == quota }
}

// longerWindow has clients ask for a window that the log does not keep.
func longerWindow(r *history.Record) {
	for i := range r.Ops {
		if r.Ops[i].WindowNS > 0 {
			r.Ops[i].WindowNS += 3 * second
		}
	}
}

// addVoters puts a change of the configuration at the end of all logs.
func addVoters(r *history.Record, voters ...[]string) {
	for i := range r.Logs {
		for j, v := range voters {
			last := len(r.Logs[0].Entries) + j
			if i > 0 {
				last = len(r.Logs[0].Entries) - len(voters) + j
			}
			r.Logs[i].Entries = append(r.Logs[i].Entries, history.Entry{Index: uint64(last) + 1, Term: 2, Voters: v})
		}
	}
}

var unsuspicious = []caseOf{
	{name: "logs that were compacted", change: func(_ *testing.T, r *history.Record) { withoutLogs(r) }},
	{name: "a page of a list that another follows", change: func(t *testing.T, r *history.Record) {
		op := pick(t, r.Ops, func(op *history.Op) bool { return op.Verb == history.List && len(op.IDs) > 1 })
		op.IDs, op.More = op.IDs[:1], true
	}},
	{name: "a deposed leader keeps what it could not commit", change: func(_ *testing.T, r *history.Record) {
		n := len(r.Logs[0].Entries)
		r.Logs[0].Entries = append(r.Logs[0].Entries, history.Entry{Index: uint64(n) + 1, Term: 2, Data: []byte("lost")})
		r.Logs[1].Entries = append(r.Logs[1].Entries, history.Entry{Index: uint64(n) + 1, Term: 3}, history.Entry{Index: uint64(n) + 2, Term: 3})
	}},
	{name: "a server was given a snapshot and keeps old entries below the gap", change: func(_ *testing.T, r *history.Record) {
		l := &r.Logs[2]
		l.Entries = slices.Concat(l.Entries[:20], l.Entries[60:])
		l.Entries[19].Term, l.Entries[19].Data = 0, []byte("not committed")
	}},
	{name: "a server is behind", change: func(_ *testing.T, r *history.Record) { r.Logs[2].Entries = r.Logs[2].Entries[:50] }},
	{name: "a sample whose leader and term are of two moments", change: func(_ *testing.T, r *history.Record) {
		for i, s := range r.Samples {
			if s.Term == 2 { // the first of this term still names the old leader
				r.Samples[i].LeaderID = "s1"
				break
			}
		}
	}},
	{name: "members change as asked, once after an unknown outcome", change: func(_ *testing.T, r *history.Record) {
		addVoters(r, []string{"s1", "s2", "s3", "s4"}, []string{"s1", "s2", "s3"}, []string{"s1", "s2", "s3", "s4"})
		r.Members = []history.Member{
			{At: 1, Change: "add-voter", ID: "s4", Outcome: history.Unknown}, {At: 2, Change: "add-voter", ID: "s4", Outcome: history.OK},
			{At: 3, Change: "remove", ID: "s4", Outcome: history.OK}, {At: 4, Change: "add-voter", ID: "s4", Outcome: history.Unknown},
			{At: 5, Change: "remove", ID: "s9", Outcome: history.Fail}, {At: 6, Change: "remove", ID: "s1", Outcome: history.Unknown},
		}
	}},
	{name: "a window passes on a clock that was made to run fast", change: func(_ *testing.T, r *history.Record) {
		longerWindow(r)
		r.Faults = append(r.Faults, history.Fault{Name: "clock-drift", Start: 1, End: r.Healing.Stopped, Happened: "off by 1s"})
	}},
	{name: "a witness that records the ends of calls late", change: func(_ *testing.T, r *history.Record) {
		for i := range r.Executions {
			if x := &r.Executions[i]; using("search")(x) {
				x.End += 20 * second
			}
		}
	}},
	{name: "a limit that somebody may have lowered", change: func(_ *testing.T, r *history.Record) {
		r.Ops = append(r.Ops, history.Op{Verb: history.UpdateQuota, Quota: "search", Limit: 1, Start: 1, End: 2, Outcome: history.Unknown})
	}},
	{name: "a limit that somebody may have raised", change: func(t *testing.T, r *history.Record) {
		pick(t, r.Ops, func(op *history.Op) bool { return op.Verb == history.CreateQuota && op.Quota == "search" }).Limit = 1
		r.Ops = append(r.Ops, history.Op{Verb: history.UpdateQuota, Quota: "search", Limit: quotaLimit, Start: 1, End: 2, Outcome: history.Unknown})
	}},
	{name: "a limit that is lowered while more is in use", change: func(t *testing.T, r *history.Record) {
		last := r.Executions[0]
		for _, x := range r.Executions {
			if using("search")(&x) {
				last = x
			}
		}
		r.Ops = append(r.Ops, history.Op{Verb: history.UpdateQuota, Quota: "search", Limit: 1, Start: last.Start + 1, End: last.Start + 2, Outcome: history.OK})
	}},
	{name: "a watcher is quicker than the witness", change: func(_ *testing.T, r *history.Record) {
		for i := range r.Watch {
			r.Watch[i].At -= int64(100 * time.Millisecond)
		}
	}},
	{name: "a witness that records ends late", change: func(_ *testing.T, r *history.Record) {
		r.Executions[len(r.Executions)-1].End += 20 * second
	}},
	{name: "calls without an answer that did or did not happen", change: func(t *testing.T, r *history.Record) {
		op := pick(t, r.Ops, submitted)
		op.Outcome, op.IDs = history.Unknown, nil
		r.Ops = append(r.Ops, history.Op{Verb: history.Submit, RequestID: "lost", Start: second, End: r.Duration, Outcome: history.Unknown})
	}},
	{name: "an unknown outcome, then a refusal", change: func(t *testing.T, r *history.Record) {
		op := pick(t, r.Ops, submitted)
		refused := *op
		op.Outcome, op.IDs = history.Unknown, nil
		refused.Start, refused.End, refused.Outcome, refused.IDs, refused.Error = op.End+1, op.End+2, history.Fail, nil, "REQUEST_EXPIRED"
		r.Ops = append(r.Ops, refused)
	}},
	{name: "a client only got the answer to its repetition", change: func(t *testing.T, r *history.Record) {
		op := pick(t, r.Ops, replayedSubmit)
		r.Ops = slices.DeleteFunc(r.Ops, func(o history.Op) bool { return o.RequestID == op.RequestID && o.Outcome == history.Unknown })
	}},
	{name: "an execution without cores of its own", change: func(_ *testing.T, r *history.Record) {
		for i := range r.Executions {
			r.Executions[i].Cores = nil
		}
	}},
	{name: "a stream that broke, and was resumed where it was", change: func(_ *testing.T, r *history.Record) {
		i := slices.IndexFunc(r.WatchNotes, func(n history.WatchNote) bool { return n.Kind == history.WatchTold })
		n := r.WatchNotes[i]
		n.Kind, n.Reason = history.WatchResumed, "unavailable: unexpected EOF"
		r.WatchNotes = slices.Insert(r.WatchNotes, i+1, n)
	}},
}
