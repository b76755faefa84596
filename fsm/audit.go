package fsm

import "fmt"

// auditKept is how many checkpoints are remembered.
const auditKept = 16

// audit compares what servers say their state hashed to at checkpoints. A
// replica alone cannot tell whether it or another is wrong, so every server
// quotes its hash through the log, and one that differs from what a majority
// quoted stops, even if it leads. It is not replicated state: a restarted
// replica begins again with the next checkpoint.
type audit struct {
	checkpoints []checkpoint // ascending by index
}

type checkpoint struct {
	index  uint64
	hash   uint64 // this replica's own, if known
	known  bool
	quotes []quote
}

type quote struct {
	server string
	hash   uint64
}

// own notes this replica's hash at an index.
func (a *audit) own(index, hash uint64) {
	c := a.at(index)
	c.hash, c.known = hash, true
}

// quote notes another server's hash, or this one's own as it went through the
// log, and fails if a majority of the voters agrees on a different hash.
func (a *audit) quote(server string, index, hash uint64, voters int) error {
	c := a.at(index)
	for _, q := range c.quotes {
		if q.server == server {
			return nil
		}
	}
	c.quotes = append(c.quotes, quote{server, hash})
	agree := 0
	for _, q := range c.quotes {
		if q.hash == hash {
			agree++
		}
	}
	if c.known && c.hash != hash && agree > voters/2 {
		return fmt.Errorf("state diverged: at entry %d this replica has hash %016x, %d of %d servers have %016x; "+
			"move its data directory away and let it rejoin as a new server", index, c.hash, agree, voters, hash)
	}
	return nil
}

func (a *audit) at(index uint64) *checkpoint {
	for i := range a.checkpoints {
		if a.checkpoints[i].index == index {
			return &a.checkpoints[i]
		}
	}
	if len(a.checkpoints) == auditKept {
		a.checkpoints = append(a.checkpoints[:0], a.checkpoints[1:]...)
	}
	a.checkpoints = append(a.checkpoints, checkpoint{index: index})
	return &a.checkpoints[len(a.checkpoints)-1]
}
