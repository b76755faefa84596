package check

import (
	"bytes"
	"slices"

	"rota/jepsen/history"
)

// tail returns the entries of a log behind its last gap. A server that was given
// a snapshot may keep entries from before it that no longer count.
func tail(entries []history.Entry) []history.Entry {
	i := len(entries) - 1
	for i > 0 && entries[i-1].Index+1 == entries[i].Index {
		i--
	}
	return entries[max(i, 0):]
}

// entryAt returns the entry with an index of contiguous ones.
func entryAt(entries []history.Entry, index uint64) (history.Entry, bool) {
	if len(entries) == 0 || index < entries[0].Index || index > entries[len(entries)-1].Index {
		return history.Entry{}, false
	}
	return entries[index-entries[0].Index], true
}

// commits returns up to where each server said that its log was committed.
func commits(r *history.Record) map[string]uint64 {
	known := make(map[string]uint64)
	for _, s := range slices.Concat(r.Samples, r.Hashes) {
		known[s.Server] = max(known[s.Server], s.Commit, s.HashIndex)
	}
	return known
}

// committedLog puts the log together on which the cluster agreed: what a server
// that has it called committed, and behind that what a majority of the voters
// has. An entry of a single server may never have been committed.
func committedLog(r *history.Record) (agreed []history.Entry) {
	known := commits(r)
	tails := make([]history.Log, len(r.Logs))
	next := uint64(0)
	for i, l := range r.Logs {
		tails[i] = history.Log{Server: l.Server, Entries: tail(l.Entries)}
		if t := tails[i].Entries; len(t) > 0 && (next == 0 || t[0].Index < next) {
			next = t[0].Index
		}
	}
	voters := r.Servers
	for ; ; next++ {
		entry, ok := agreedEntry(tails, known, voters, next)
		if !ok {
			return agreed
		}
		agreed = append(agreed, entry)
		if entry.Voters != nil {
			voters = entry.Voters
		}
	}
}

func agreedEntry(tails []history.Log, known map[string]uint64, voters []string, index uint64) (history.Entry, bool) {
	votes := make(map[uint64]int) // by term
	for _, l := range tails {
		entry, ok := entryAt(l.Entries, index)
		if !ok {
			continue
		}
		if known[l.Server] >= index {
			return entry, true
		}
		if slices.Contains(voters, l.Server) {
			votes[entry.Term]++
		}
		if votes[entry.Term] > len(voters)/2 {
			return entry, true
		}
	}
	return history.Entry{}, false
}

// logs: what two servers both call committed is the same, and two logs that
// agree on the term of an entry agree on all before it. Behind that they may
// differ: a leader that was deposed keeps what it could not commit until another
// one overwrites it.
func logs(e *evidence, f *findings) {
	known := commits(e.Record)
	for i, a := range e.Logs {
		for _, b := range e.Logs[i+1:] {
			matchLogs(a, b, min(known[a.Server], known[b.Server]), f)
		}
	}
}

// matchLogs compares two logs from their newest common entry back.
func matchLogs(a, b history.Log, committed uint64, f *findings) {
	x, y := tail(a.Entries), tail(b.Entries)
	if len(x) == 0 || len(y) == 0 {
		return
	}
	first := max(x[0].Index, y[0].Index)
	agree := false
	var oldest history.Entry // the first that differs, of b
	differ := 0
	for index := min(x[len(x)-1].Index, y[len(y)-1].Index); index >= first; index-- {
		p, _ := entryAt(x, index)
		q, _ := entryAt(y, index)
		f.checked++
		agree = agree || p.Term == q.Term
		if (agree || index <= committed) && !sameEntry(p, q) {
			oldest = q
			differ++
		}
	}
	if differ > 0 {
		f.add(nil, "the logs of %s and %s differ at %d entries that must be the same, first at entry %d (term %d on %s)", a.Server, b.Server, differ, oldest.Index, oldest.Term, b.Server)
	}
}

func sameEntry(a, b history.Entry) bool {
	return a.Term == b.Term && bytes.Equal(a.Data, b.Data) && slices.Equal(a.Voters, b.Voters)
}
