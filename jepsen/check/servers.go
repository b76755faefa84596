package check

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"rota/jepsen/history"
)

// leaders: a term has one leader at most, by what servers say and by the logs.
//
// A server reads whom it takes for the leader a moment before it reads the term,
// and either may change in between. Two samples in a row with the same term and
// the same leader prove that both were true at once: when the second read the
// leader, the term was what both say.
func leaders(e *evidence, f *findings) {
	type claim struct {
		leader  string
		samples [2]history.Sample
	}
	claims := make(map[uint64]claim)
	last := make(map[string]history.Sample)
	for _, s := range byTime(e.Samples) {
		before := last[s.Server]
		last[s.Server] = s
		if s.LeaderID == "" || before.LeaderID != s.LeaderID || before.Term != s.Term {
			continue
		}
		f.checked++
		first, known := claims[s.Term]
		switch {
		case !known:
			claims[s.Term] = claim{s.LeaderID, [2]history.Sample{before, s}}
		case first.leader != s.LeaderID:
			f.add([]string{
				describeSample(first.samples[0]), describeSample(first.samples[1]), describeSample(before), describeSample(s),
			}, "term %d has two leaders, %s and %s", s.Term, first.leader, s.LeaderID)
		}
	}
	for _, l := range e.Logs {
		f.checked += len(l.Entries)
		termsGrow(l, f)
	}
}

func termsGrow(l history.Log, f *findings) {
	entries := tail(l.Entries)
	for i := 1; i < len(entries); i++ {
		if a, b := entries[i-1], entries[i]; b.Term < a.Term {
			f.add(nil, "the log of %s goes back from term %d at entry %d to term %d at entry %d", l.Server, a.Term, a.Index, b.Term, b.Index)
			return
		}
	}
}

func byTime(samples []history.Sample) []history.Sample {
	sorted := slices.Clone(samples)
	slices.SortStableFunc(sorted, func(a, b history.Sample) int { return cmp.Compare(a.At, b.At) })
	return sorted
}

// hashes: whoever has applied the same entry has the same state, while it runs
// and in the end.
func hashes(e *evidence, f *findings) {
	first := make(map[uint64]history.Sample)
	compared := make(map[string]bool)
	for _, s := range append(byTime(e.Samples), e.Hashes...) {
		if s.HashIndex == 0 || s.Hash == "" {
			continue
		}
		seen, known := first[s.HashIndex]
		if !known {
			first[s.HashIndex] = s
			continue
		}
		if seen.Hash != s.Hash {
			f.add([]string{describeSample(seen), describeSample(s)}, "state differs at entry %d: %s on %s, %s on %s", s.HashIndex, seen.Hash, seen.Server, s.Hash, s.Server)
		}
		if seen.Server != s.Server {
			f.checked++
			compared[seen.Server], compared[s.Server] = true, true
		}
	}
	sameIndex(e.Hashes, f)
	if len(e.Members) > 0 || f.checked == 0 {
		return // who should be there is not known, or nobody was compared
	}
	for _, server := range e.Servers {
		if !compared[server] {
			f.add(nil, "the state of %s was never compared with another server's at one entry", server)
		}
	}
}

// sameIndex: the hashes of the end are of one entry, or the servers did not come
// to rest together.
func sameIndex(end []history.Sample, f *findings) {
	for _, s := range end {
		if s.HashIndex != end[0].HashIndex {
			f.add([]string{describeSample(end[0]), describeSample(s)}, "servers did not come to the same entry in the end")
			return
		}
	}
}

// members: every change of the voters in the log is one that was asked for, one
// voter at a time, and what was acknowledged last holds in the end.
func members(e *evidence, f *findings) {
	var voters []string
	asked := slices.Clone(e.Members)
	for _, entry := range e.committed() {
		if entry.Voters == nil {
			continue
		}
		f.checked++
		if voters != nil {
			asked = explain(voters, entry, asked, f)
		}
		voters = entry.Voters
	}
	if f.checked == 0 {
		return
	}
	newest := make(map[string]history.Member)
	for _, m := range e.Members {
		if m.Outcome != history.Fail && m.At >= newest[m.ID].At {
			newest[m.ID] = m
		}
	}
	for _, id := range slices.Sorted(maps.Keys(newest)) {
		if m := newest[id]; m.Outcome == history.OK && slices.Contains(voters, id) == (m.Change == removal) {
			f.add([]string{describeMember(m)}, "%s of %s was acknowledged, and in the end the voters are %s", m.Change, id, strings.Join(voters, ", "))
		}
	}
}

// removal is the change of Member that takes a voter out.
const removal = "remove"

// explain finds who asked for a change of the voters and takes that out of
// asked: an acknowledged request, or else one whose outcome is unknown.
func explain(before []string, entry history.Entry, asked []history.Member, f *findings) []history.Member {
	added, removed := minus(entry.Voters, before), minus(before, entry.Voters)
	if len(added)+len(removed) > 1 {
		f.add(nil, "entry %d changes more than one voter: %q added, %q removed", entry.Index, added, removed)
	}
	for _, id := range slices.Concat(added, removed) {
		find := func(o history.Outcome) int {
			return slices.IndexFunc(asked, func(m history.Member) bool {
				return m.ID == id && m.Outcome == o && (m.Change == removal) == slices.Contains(removed, id)
			})
		}
		i := find(history.OK)
		if i < 0 {
			i = find(history.Unknown)
		}
		if i < 0 {
			f.add(nil, "entry %d makes the voters %q of %q, and nobody asked for that of %s", entry.Index, entry.Voters, before, id)
			continue
		}
		asked = slices.Delete(asked, i, i+1)
	}
	return asked
}

func minus(a, b []string) (out []string) {
	for _, id := range a {
		if !slices.Contains(b, id) {
			out = append(out, id)
		}
	}
	return out
}

func describeMember(m history.Member) string {
	return fmt.Sprintf("%s: %s %s: %s", at(m.At), m.Change, m.ID, m.Outcome)
}
