package leader

import (
	"time"

	"github.com/hashicorp/go-hclog"

	logv1 "rota/api/gen/log/v1"
	"rota/server/lease"
)

const (
	// expireBatch is how many nodes and turns are given up in one entry: each node may
	// take many actions with it.
	expireBatch = 16
	// expiryPause is the longest time between two looks at the leases.
	expiryPause = time.Second
)

// expiry gives up the nodes and turns whose lease has ended.
type expiry struct {
	leases Leases
	logger hclog.Logger
	// due are those that were found by the last look and are not proposed yet.
	due []lease.Due
	// next is when the leases are looked at again.
	next int64
}

func (e *expiry) propose(now Time) (commands []*logv1.Command, again int64) {
	if len(e.due) == 0 && now.Mono >= e.next {
		e.due = e.leases.Overdue()
		e.next = now.Mono + int64(min(e.leases.Patience()/8, expiryPause))
	}
	n := min(len(e.due), expireBatch)
	for _, d := range e.due[:n] {
		e.logger.Warn("a lease ended: giving its holder up", "node", d.Node, "turn", d.Turn, "silent", d.Silent)
		commands = append(commands, d.Command())
	}
	e.due = e.due[n:]
	return commands, e.next
}

func (e *expiry) answered(_ Time, results []*logv1.Result) {
	if results == nil {
		e.logger.Warn("could not commit that nodes or turns are lost; trying again")
		e.due = nil // the next look finds them again
	}
}
