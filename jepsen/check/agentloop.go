package check

import (
	"slices"
	"strings"
	"time"

	"rota/jepsen/history"
)

// routesLate is how long a gateway may use a route of before: it follows routes by a watch, and
// goes on with the last ones while no server answers.
const routesLate = int64(2 * time.Second)

// tokens: what a client is streamed is the answer, or its beginning if the stream broke. So no
// token came twice, and none is missing, whichever engines generated it.
func tokens(e *evidence, f *findings) {
	for _, op := range e.Ops {
		if op.Verb != history.Generate || op.Text == "" && op.Outcome != history.OK {
			continue
		}
		f.checked++
		switch {
		case !strings.HasPrefix(op.Want, op.Text):
			f.add(describeOps(op), "the answer to trajectory %d differs from what was generated after %d bytes: %q", op.Target, common(op.Want, op.Text), after(op))
		case op.Outcome == history.OK && op.Text != op.Want:
			f.add(describeOps(op), "the answer to trajectory %d ended after %d of %d bytes", op.Target, len(op.Text), len(op.Want))
		}
	}
}

// common is how long the beginning is that two texts have in common.
func common(a, b string) (n int) {
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}

// after is some of the text that is wrong.
func after(op history.Op) string {
	text := op.Text[common(op.Want, op.Text):]
	return text[:min(len(text), 40)]
}

// versions: what is generated for a trajectory is generated with weights at least as new as those
// that were current when it began, and so for each sample that a step is given. A request that
// begins when a version has been there for longer than routes are late is answered by workers that
// have it. No engine has a version that nobody has published.
func versions(e *evidence, f *findings) {
	t := trainingOf(e.Ops)
	opened := openedAt(e.Ops)
	generated := map[uint64][]history.Op{}
	for _, op := range e.Ops {
		if op.Verb != history.Generate || len(op.Versions) == 0 {
			continue
		}
		generated[op.Target] = append(generated[op.Target], op)
		f.checked++
		least := slices.Min(op.Versions)
		if p, late := t.newestBefore(op.Policy, op.Start-routesLate); late && least < p.Version {
			f.add(describeOps(p, op), "a worker with version %d of %s generated %v after version %d was published", least, op.Policy, time.Duration(op.Start-p.End), p.Version)
		}
		if at, known := opened[op.Target]; known {
			if p, before := t.newestBefore(op.Policy, at); before && least < p.Version {
				f.add(describeOps(p, op), "trajectory %d was opened after version %d was published, and a worker with version %d generated for it", op.Target, p.Version, least)
			}
		}
		if newest := slices.Max(op.Versions); newest > t.newestBegun(op.Policy, op.End) {
			f.add(describeOps(op), "a worker generated with version %d of %s, which nobody had published", newest, op.Policy)
		}
	}
	for _, b := range t.batches {
		for _, s := range b[0].Batch {
			for _, op := range generated[s.Trajectory] {
				if f.checked++; slices.Min(op.Versions) < s.Version {
					f.add(describeOps(op, b[0]), "the sample of trajectory %d, which began with version %d, was generated with version %d", s.Trajectory, s.Version, slices.Min(op.Versions))
				}
			}
		}
	}
}

// openedAt is when each trajectory of a rollout was asked for first: a repeated call is answered
// with the trajectory of the first.
func openedAt(ops []history.Op) map[uint64]int64 {
	first, opened := map[string]int64{}, map[uint64]int64{}
	for _, op := range ops {
		if op.Verb != history.OpenMember {
			continue
		}
		if at, ok := first[op.RequestID]; !ok || op.Start < at {
			first[op.RequestID] = op.Start
		}
	}
	for _, op := range ops {
		if op.Verb == history.OpenMember && op.Outcome == history.OK {
			opened[op.IDs[0]] = first[op.RequestID]
		}
	}
	return opened
}

// newestBefore is the newest version that had been published for certain at a time.
func (t *training) newestBefore(policy string, at int64) (newest history.Op, ok bool) {
	for _, op := range t.published[policy] {
		if op.Outcome == history.OK && op.End < at && (!ok || op.Version > newest.Version) {
			newest, ok = op, true
		}
	}
	return newest, ok
}

// newestBegun is the newest version that somebody had begun to publish at a time.
func (t *training) newestBegun(policy string, at int64) (newest uint64) {
	for _, op := range t.published[policy] {
		if op.Start < at {
			newest = max(newest, op.Version)
		}
	}
	return newest
}
