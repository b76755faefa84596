package check

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"rota/jepsen/history"
)

// observationLag is how much later than the fact an observer may have stamped
// it: its goroutine has to be woken on a machine that is busy. Times of two
// observers that differ by less are not compared. The witness is one observer:
// it stamps ends before starts that followed them, so its own times are compared
// as they are. It may be later by any time, so with others only that is compared
// until when it saw an execution alive.
const observationLag = 200 * time.Millisecond

// retention is how long the cluster keeps what has ended, in log time.
const retention = time.Hour

// evidence is a record with what several checkers derive from it.
type evidence struct {
	*history.Record
	limits Limits

	// committed is the log as the cluster agreed on it, truth what it says when
	// it is replayed.
	committed func() []history.Entry
	truth     func() *truth
	requests  func() map[string]*request
}

func gather(r *history.Record, l Limits) *evidence {
	e := &evidence{Record: r, limits: l.withDefaults()}
	e.committed = sync.OnceValue(func() []history.Entry { return committedLog(r) })
	e.truth = sync.OnceValue(func() *truth { return replayLog(e) })
	e.requests = sync.OnceValue(func() map[string]*request { return requestsOf(r.Ops) })
	return e
}

// noWholeLog is why a checker looked only at a part.
const noWholeLog = "there is no whole log, and what only that shows was not looked at"

// whole is what the log says, for a checker that looks at less without a whole one, and whether
// it is whole. If not, the verdict says so.
func (e *evidence) whole(f *findings) (t *truth, whole bool) {
	if t = e.truth(); !t.complete {
		f.partly = noWholeLog
	}
	return t, t.complete
}

// request is all that clients know of one request ID.
type request struct {
	id    string
	verb  history.Verb
	retry bool
	ops   []history.Op
}

// requested are the verbs whose requests have IDs, and whose answers name what was made.
var requested = []history.Verb{history.Submit, history.OpenTrajectory, history.OpenMember, history.CreateRollout, history.Acquire}

func requestsOf(ops []history.Op) map[string]*request {
	all := make(map[string]*request)
	for _, op := range ops {
		if op.RequestID == "" || !slices.Contains(requested, op.Verb) {
			continue
		}
		q := all[op.RequestID]
		if q == nil {
			q = &request{id: op.RequestID, verb: op.Verb}
			all[op.RequestID] = q
		}
		q.retry = q.retry || op.Retry
		q.ops = append(q.ops, op)
	}
	return all
}

// refused reports whether every call was answered, and none with success.
func (q *request) refused() bool {
	return !slices.ContainsFunc(q.ops, func(op history.Op) bool { return op.Outcome != history.Fail })
}

// acknowledged are the calls that were answered with success.
func (q *request) acknowledged() (ops []history.Op) {
	for _, op := range q.ops {
		if op.Outcome == history.OK {
			ops = append(ops, op)
		}
	}
	return ops
}

// requestOf finds the request that an action's name is of: the ID, which a
// separator and the number of the action in the submission may follow.
func requestOf(all map[string]*request, name string) *request {
	if q := all[name]; q != nil {
		return q
	}
	bare := strings.TrimRight(name, "0123456789")
	if len(bare) < 2 || len(bare) == len(name) {
		return nil
	}
	return all[bare[:len(bare)-1]]
}

// final reports whether an action in this state has ended.
func final(state string) bool {
	switch state {
	case "SUCCEEDED", "FAILED", "CANCELED", "LOST", "EXPIRED":
		return true
	}
	return false
}

// at writes a time of the record.
func at(ns int64) string { return fmt.Sprintf("%.3fs", float64(ns)/1e9) }

func describeOp(op history.Op) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s to %s: client %d %s", at(op.Start), at(op.End), op.Client, op.Verb)
	for _, part := range []struct {
		set  bool
		text string
	}{
		{op.RequestID != "", " request " + op.RequestID},
		{op.Target != 0, fmt.Sprintf(" of %d", op.Target)},
		{op.Node != "", " node " + op.Node},
		{op.Quota != "", " quota " + op.Quota},
		{op.Group != "", " node group " + op.Group},
		{op.Job != "", " job " + op.Job},
		{op.Change != "", " " + op.Change},
		{op.Deployment != "", " deployment " + op.Deployment},
		{op.Model != "", " model " + op.Model},
		{op.Declaration != "", " declaration " + op.Declaration},
		{op.Policy != "", " policy " + op.Policy},
		{op.Version != 0, fmt.Sprintf(" version %d", op.Version)},
		{len(op.Versions) > 0, fmt.Sprintf(" with versions %v", op.Versions)},
		{op.Function != "", " function " + op.Function},
		{op.Verb == history.ReportReward, fmt.Sprintf(" calls %d", op.Calls)},
		{op.Wanted != 0, fmt.Sprintf(" wants %d", op.Wanted)},
		{op.Step != 0, fmt.Sprintf(" step %d", op.Step)},
		{op.Verb == history.OpenMember, fmt.Sprintf(" prompt %d", op.Prompt)},
		{op.Verb == history.PutSample, fmt.Sprintf(" reward %g", op.Reward)},
		{op.Limit+op.Keys != 0, fmt.Sprintf(" limit %d of %d keys", op.Limit, op.Keys)},
		{op.Server != "", " at " + op.Server},
		{true, ": " + string(op.Outcome)},
		{op.Error != "", " " + op.Error},
		{len(op.IDs) > 0, fmt.Sprintf(" ids %v", op.IDs)},
		{op.Replayed, " replayed"},
		{op.Accepted, " accepted"},
		{len(op.Batch) > 0, fmt.Sprintf(" batch %v", op.Batch)},
		{op.State != "", " " + op.State},
		{op.Deleting, " deleting"},
		{op.Attempt != 0, fmt.Sprintf(" attempt %d", op.Attempt)},
	} {
		if part.set {
			b.WriteString(part.text)
		}
	}
	return b.String()
}

func describeOps(ops ...history.Op) (lines []string) {
	for _, op := range ops {
		lines = append(lines, describeOp(op))
	}
	return lines
}

func describeExecution(x history.Execution) string {
	until := "still alive"
	if x.End != 0 {
		until = fmt.Sprintf("to %s (alive at %s)", at(x.End), at(x.Alive))
	}
	done := ""
	if x.Complete {
		done = ", complete"
	}
	has := fmt.Sprintf("cores %v", x.Cores)
	if len(x.GPUs) > 0 {
		has += fmt.Sprintf(", GPUs %v", x.GPUs)
	}
	if x.Answer != nil {
		has += fmt.Sprintf(", answered by %s of declaration %s on GPUs %v", x.Answer.Model, x.Answer.Declaration, x.Answer.GPUs)
	}
	for _, use := range x.Uses {
		has += fmt.Sprintf(", %d of key %d of %s", use.Units, use.Key, use.Quota)
	}
	return fmt.Sprintf("%s %s: action %d attempt %d (incarnation %d) of request %s on %s %s%s",
		at(x.Start), until, x.Action, x.Attempt, x.Incarnation, x.RequestID, x.Node, has, done)
}

func describeExecutions(list ...history.Execution) (lines []string) {
	for _, x := range list {
		lines = append(lines, describeExecution(x))
	}
	return lines
}

func describeSample(s history.Sample) string {
	return fmt.Sprintf("%s: %s says term %d, leader %s, commit %d, hash %s at %d", at(s.At), s.Server, s.Term, s.LeaderID, s.Commit, s.Hash, s.HashIndex)
}

func describeFinal(a history.Action) string {
	return fmt.Sprintf("in the end: action %d %q %s, attempt %d", a.ID, a.Name, a.State, a.Attempt)
}
