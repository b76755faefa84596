package dst

import (
	"rota/fsm"
	"rota/fsm/state"
	"rota/internal/sim"
	"rota/jepsen/model"
)

// plant says which decision panics.
type plant struct {
	pool state.PoolID // 0: not about pools
	// About the first command of an entry, a quota, a node group, or the placement of jobs.
	command, quota, group, placement bool
}

// about reports whether a decision is the planted one.
func (p plant) about(d fsm.Decision) bool {
	return p.command && d.Command == 0 || p.pool != 0 && p.pool == d.Pool && d.Command < 0 || p.quota && d.Quota != 0 ||
		p.group && d.Group != 0 || p.placement && d.Placement
}

// panicSoon makes a decision panic: the next about the first command of an entry, a pool, any
// quota, any node group, or the placement of jobs. After a while operators resume what was
// halted. If no such decision was taken until then, none panics.
func (w *World) panicSoon(e Event, d *sim.Draw) {
	p := &plant{pool: state.PoolID(d.Between(1, 2))}
	if d.Chance(400_000) {
		p = &plant{command: true}
	} else if d.Chance(300_000) {
		p = &plant{quota: true}
	} else if d.Chance(300_000) {
		p = &plant{group: true}
	} else if d.Chance(200_000) {
		p = &plant{placement: true}
	}
	w.planned = p
	w.undoAfter(e.For, func() {
		if w.planned == p {
			w.planned = nil
		}
		for _, pool := range []string{"default", "other"} {
			w.clients[0].resumePool(pool, triesMax)
		}
		w.clients[0].resumeQuotas()
		w.clients[0].resumeLedger(triesMax)
	})
}

// plant makes decisions panic. The first replica that applies an entry settles which: it is the
// same on every replica.
func (w *World) plant(index uint64, d fsm.Decision) {
	if w.planned != nil && index > w.audit.checked && w.planned.about(d) {
		w.panics[index], w.planned = d, nil
		w.trace("a decision panics in entry %d: %+v", index, d)
		w.count(Panic)
	}
	if w.flaws.Panics && d.Quota != 0 {
		panic("nobody planted it")
	}
	if planted, ok := w.panics[index]; ok && planted == d {
		panic(model.PlantedMessage)
	}
}

// panicked returns which decision of an entry panicked, in the words of the model.
func (w *World) panicked(index uint64) []model.Planted {
	d, ok := w.panics[index]
	if !ok {
		return nil
	}
	return []model.Planted{{Command: d.Command, Pool: d.Pool, Quota: d.Quota, Group: d.Group, Placement: d.Placement}}
}

// resumeHalted has pools and quotas go on that a panic has halted.
func (c *client) resumeHalted(s *state.State) {
	s.Pools(func(p *state.Pool) bool {
		if p.Halted != "" {
			c.resumePool(p.Name, 1)
		}
		return true
	})
	halted := false
	s.Quotas(func(q *state.Quota) bool {
		halted = halted || q.Halted != ""
		return true
	})
	if halted {
		c.resumeQuotas()
	}
}
