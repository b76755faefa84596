package check

import (
	"testing"

	"rota/jepsen/history"
)

// essay is what engines generate.
const essay = " simbaba simbebe simbibi simbobo"

// generatedFor adds two answers to a trajectory: a stream that broke, and the whole.
func generatedFor(add func(history.Op), policy string, trajectory, version uint64) {
	op := history.Op{Verb: history.Generate, Policy: policy, Target: trajectory, Want: essay, Versions: []uint64{version}}
	op.Text, op.Outcome = essay[:16], history.Unknown
	add(op)
	op.Text, op.Outcome = essay, history.OK
	add(op)
}

// answerFor is a whole answer to a trajectory of a step of a policy.
func answerFor(t *testing.T, r *history.Record, policy string, step uint64) *history.Op {
	t.Helper()
	id := batchOf(t, r, policy, step).Batch[0].Trajectory
	return pick(t, r.Ops, func(op *history.Op) bool {
		return op.Verb == history.Generate && op.Target == id && op.Outcome == history.OK
	})
}

var brokenAnswers = []caseOf{
	{"tokens", "a token twice", "differs from what was generated after 13 bytes", func(t *testing.T, r *history.Record) {
		op := answerFor(t, r, "coder", 1)
		op.Text = essay[:8] + essay
	}},
	{"tokens", "a token lost", "differs from what was generated after 13 bytes", func(t *testing.T, r *history.Record) {
		op := answerFor(t, r, "coder", 1)
		op.Text = essay[:8] + essay[16:]
	}},
	{"tokens", "a token lost before the stream broke", "differs from what was generated after", func(t *testing.T, r *history.Record) {
		op := answerFor(t, r, "coder", 1)
		op.Outcome, op.Text = history.Unknown, essay[8:24]
	}},
	{"tokens", "an end too early", "ended after 24 of 32 bytes", func(t *testing.T, r *history.Record) {
		answerFor(t, r, "coder", 1).Text = essay[:24]
	}},
	{"tokens", "a whole answer without text", "ended after 0 of 32 bytes", func(t *testing.T, r *history.Record) {
		answerFor(t, r, "coder", 1).Text = ""
	}},
	{"versions", "a sample of old weights", "which began with version 2, was generated with version 1", func(t *testing.T, r *history.Record) {
		answerFor(t, r, "coder", 3).Versions = []uint64{2, 1, 2}
	}},
	{"versions", "a new trajectory at a worker with old weights", "was opened after version 2 was published, and a worker with version 0", func(t *testing.T, r *history.Record) {
		answerFor(t, r, "browser", 3).Versions = []uint64{0}
		without(r, "browser", 3)
	}},
	{"versions", "an old trajectory at a worker with old weights", "after version 3 was published", func(t *testing.T, r *history.Record) {
		op := *answerFor(t, r, "browser", 1)
		op.Start, op.End = op.Start+100*second, op.End+100*second
		r.Ops = append(r.Ops, op)
	}},
	{"versions", "weights that nobody has made", "generated with version 7 of coder, which nobody had published", func(t *testing.T, r *history.Record) {
		answerFor(t, r, "coder", 2).Versions = []uint64{1, 7}
	}},
}

// unsuspiciousAnswers look like violations and are none.
var unsuspiciousAnswers = []caseOf{
	{"versions", "a gateway that is a little late", "", func(t *testing.T, r *history.Record) {
		op := *answerFor(t, r, "browser", 1)
		at := pick(t, r.Ops, func(op *history.Op) bool {
			return op.Verb == history.PublishVersion && op.Policy == "browser" && op.Version == 1
		}).End
		op.Start, op.End = at+second, at+2*second
		r.Ops = append(r.Ops, op)
	}},
	{"versions", "a call that was repeated after the version was published", "", func(t *testing.T, r *history.Record) {
		id := answerFor(t, r, "browser", 1).Target
		opened := *pick(t, r.Ops, func(op *history.Op) bool { return op.Verb == history.OpenMember && len(op.IDs) > 0 && op.IDs[0] == id })
		opened.Start, opened.End, opened.Replayed = opened.Start+1000*second, opened.End+1000*second, true
		r.Ops = append(r.Ops, opened)
	}},
	{"tokens", "an answer that was broken off before its first token", "", func(t *testing.T, r *history.Record) {
		op := answerFor(t, r, "coder", 1)
		op.Outcome, op.Text = history.Unknown, ""
	}},
	{"tokens", "an answer that its client broke off", "", func(t *testing.T, r *history.Record) {
		op := answerFor(t, r, "coder", 1)
		op.Outcome, op.Text = history.Unknown, essay[:24]
	}},
}
