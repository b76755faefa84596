package entry

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	logv1 "rota/api/gen/log/v1"
	"rota/fsm"
)

// TestEntriesAreBoundedByWeight fills queues with proposals that are small on the wire:
// what they cost to apply decides how many of them share an entry.
func TestEntriesAreBoundedByWeight(t *testing.T) {
	report := func(n int) *logv1.Command {
		return &logv1.Command{Verb: &logv1.Command_ReportAttempts{ReportAttempts: &logv1.ReportAttempts{
			Node: "n", Incarnation: 1, Reports: make([]*logv1.AttemptReport, n),
		}}}
	}
	submit := &logv1.Command{Verb: &logv1.Command_SubmitActions{SubmitActions: &logv1.SubmitActions{Actions: make([]*logv1.Action, 1)}}}
	const most = fsm.EntryWeight / fsm.ReportWeight
	for name, c := range map[string]struct {
		command *logv1.Command
		n       int
		want    int // proposals in the first entry
	}{
		"submissions":         {submit, 5000, fsm.EntryWeight},
		"reports":             {report(1), 5000, most},
		"reports in batches":  {report(most / 4), 10, 4},
		"more than one entry": {report(2 * most), 3, 1},
	} {
		t.Run(name, func(t *testing.T) {
			q := NewQueue[int](Limits{QueueBytes: 1 << 30, EntryBytes: 1 << 20, EntryWeight: fsm.EntryWeight})
			for i := range c.n {
				if !q.Push(NewProposal(i, 1, []*logv1.Command{c.command}, fsm.Weight(c.command))) {
					t.Fatal("the queue is full")
				}
			}
			if got := len(q.Take()); got != c.want {
				t.Errorf("the first entry has %d proposals, want %d", got, c.want)
			}
		})
	}
}

// named returns commands that tell themselves apart.
func named(names ...string) (commands []*logv1.Command) {
	for _, n := range names {
		commands = append(commands, &logv1.Command{Verb: &logv1.Command_CreateNamespace{CreateNamespace: &logv1.CreateNamespace{Name: n}}})
	}
	return commands
}

// roomy are limits that no test here meets by chance.
var roomy = Limits{QueueBytes: 1 << 20, EntryBytes: 1 << 20, EntryWeight: 1 << 10}

// push adds proposals of a weight of one for each command.
func push(t *testing.T, q *Queue[string], caller string, term uint64, names ...string) *Proposal[string] {
	t.Helper()
	p := NewProposal(caller, term, named(names...), len(names))
	if !q.Push(p) {
		t.Fatalf("the queue is full at %s", caller)
	}
	return p
}

// callers are those of the next entry, in order.
func callers(b Batch[string]) (list []string) {
	for _, p := range b {
		list = append(list, p.Caller)
	}
	return list
}

func expectCallers(t *testing.T, what string, b Batch[string], want ...string) {
	t.Helper()
	if got := callers(b); !slices.Equal(got, want) {
		t.Errorf("%s: the entry is of %q, want %q", what, got, want)
	}
}

func TestAnEntryIsOfOneTerm(t *testing.T) {
	q := NewQueue[string](roomy)
	push(t, q, "a", 1, "x")
	push(t, q, "b", 1, "x")
	push(t, q, "c", 2, "x")
	push(t, q, "d", 1, "x")
	expectCallers(t, "first", q.Take(), "a", "b")
	expectCallers(t, "second", q.Take(), "c")
	expectCallers(t, "third", q.Take(), "d")
	expectCallers(t, "nothing waits", q.Take())
}

func TestLimitsOfAnEntry(t *testing.T) {
	one := NewProposal("", 1, named("x"), 1).Bytes()
	for _, c := range []struct {
		what   string
		limits Limits
		want   [][]string
	}{
		{"bytes", Limits{1 << 20, 2 * one, 1 << 10}, [][]string{{"a", "b"}, {"c", "d"}}},
		{"weight", Limits{1 << 20, 1 << 20, 3}, [][]string{{"a", "b", "c"}, {"d"}}},
		{"a proposal beyond the limit", Limits{1 << 20, one / 2, 1 << 10}, [][]string{{"a"}, {"b"}, {"c"}, {"d"}}},
	} {
		q := NewQueue[string](c.limits)
		for _, caller := range []string{"a", "b", "c", "d"} {
			push(t, q, caller, 1, "x")
		}
		for _, want := range c.want {
			expectCallers(t, c.what, q.Take(), want...)
		}
	}
}

func TestAFullQueueRefuses(t *testing.T) {
	one := NewProposal("", 1, named("x"), 1).Bytes()
	q := NewQueue[string](Limits{QueueBytes: 2*one - 1, EntryBytes: 1 << 20, EntryWeight: 1 << 10})
	large := NewProposal("large", 1, named("a", "b", "c"), 3)
	if !q.Push(large) {
		t.Error("an empty queue refuses a proposal")
	}
	if q.Push(NewProposal("b", 1, named("x"), 1)) {
		t.Error("a full queue takes a proposal")
	}
	if q.Take(); q.Bytes() != 0 || !q.Push(NewProposal("b", 1, named("x"), 1)) {
		t.Errorf("%d bytes wait after all were taken", q.Bytes())
	}
}

// A caller that gives up knows whether its commands may be committed.
func TestWithdraw(t *testing.T) {
	q := NewQueue[string](roomy)
	first := push(t, q, "a", 1, "x")
	second := push(t, q, "b", 1, "x")
	if !q.Withdraw(first) {
		t.Error("a proposal that waits cannot be withdrawn")
	}
	expectCallers(t, "after a withdrawal", q.Take(), "b")
	if q.Withdraw(second) {
		t.Error("a proposal is withdrawn that an entry has")
	}
	if q.Idle() {
		t.Error("the queue is idle before its batch is settled")
	}
	if q.Settle(); !q.Idle() {
		t.Error("the queue is not idle after its batch is settled")
	}
}

// Whatever is batched, each caller gets the results of its own commands.
func TestEachCallerGetsItsOwnResults(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q := NewQueue[int](Limits{QueueBytes: 1 << 20, EntryBytes: rapid.IntRange(1, 2000).Draw(t, "bytes"), EntryWeight: rapid.IntRange(1, 10).Draw(t, "weight")})
		want := map[int][]string{}
		for caller := range rapid.IntRange(1, 12).Draw(t, "callers") {
			names := rapid.SliceOfN(rapid.StringN(1, 8, 8), 1, 4).Draw(t, "names")
			want[caller] = names
			q.Push(NewProposal(caller, 1, named(names...), len(names)))
		}
		for b := q.Take(); len(b) > 0; b = q.Take() {
			var results []*logv1.Result // each quotes its command
			for _, c := range b.Commands() {
				results = append(results, &logv1.Result{Refusal: &logv1.Refusal{Message: c.GetCreateNamespace().Name}})
			}
			if b.Len() != len(results) {
				t.Fatalf("a batch of %d commands says %d", len(results), b.Len())
			}
			for caller, own := range b.Answers(results) {
				var got []string
				for _, r := range own {
					got = append(got, r.Refusal.Message)
				}
				if !slices.Equal(got, want[caller]) {
					t.Fatalf("caller %d proposed %q and has the results of %q", caller, want[caller], got)
				}
				delete(want, caller)
			}
		}
		if len(want) > 0 {
			t.Fatalf("without an answer: %v", want)
		}
	})
}

var submit = []*logv1.Command{{Verb: &logv1.Command_SubmitActions{SubmitActions: &logv1.SubmitActions{}}}}

// Submissions that do not fit beside all others, or are of an older term, wait for one entry at most
// once they are the oldest, however many others there are.
func TestSubmissionsAreNotPassedOverTwice(t *testing.T) {
	for name, c := range map[string]struct {
		term   uint64
		weight int
	}{"large": {2, 3}, "of an older term": {1, 1}} {
		t.Run(name, func(t *testing.T) {
			q := NewQueue[string](Limits{QueueBytes: 1 << 20, EntryBytes: 1 << 20, EntryWeight: 4})
			others := func() {
				for range 4 {
					push(t, q, "other", 2, "x")
				}
			}
			for range 2 {
				if !q.Push(NewProposal("submission", c.term, submit, c.weight)) {
					t.Fatal("the queue is full")
				}
			}
			others()
			for taken := range 2 {
				expectCallers(t, name, q.Take(), "other", "other", "other")
				others()
				if b := q.Take(); len(b) == 0 || b[0].Caller != "submission" {
					t.Fatalf("after %d submissions the entry is of %q", taken, callers(b))
				}
				if c.weight == 1 {
					return // both are in that entry
				}
			}
		})
	}
}

// Under overload submissions are many, and what frees cores goes before them. But submissions that
// wait have a part of each entry.
func TestSubmissionsGoLast(t *testing.T) {
	q := NewQueue[string](Limits{QueueBytes: 1 << 20, EntryBytes: 1 << 20, EntryWeight: 4})
	submission := func(caller string) {
		t.Helper()
		if !q.Push(NewProposal(caller, 1, submit, 1)) {
			t.Fatal("the queue is full")
		}
	}
	submission("s1")
	submission("s2")
	submission("s3")
	for _, caller := range []string{"r1", "r2", "r3", "r4"} {
		push(t, q, caller, 1, "x")
	}
	mixed := NewProposal("both", 1, append(named("x"), submit...), 2) // is not put off
	if !q.Push(mixed) {
		t.Fatal("the queue is full")
	}
	expectCallers(t, "first", q.Take(), "r1", "r2", "r3", "s1")
	expectCallers(t, "second", q.Take(), "r4", "both", "s2")
	expectCallers(t, "third", q.Take(), "s3")
	if expectCallers(t, "nothing waits", q.Take()); q.Bytes() != 0 {
		t.Errorf("%d bytes wait after all were taken", q.Bytes())
	}
}
