package dst

import (
	"cmp"
	"slices"

	"rota/internal/sim"
)

// partitionsPerHour is how often a node is cut off for longer than its lease.
// Each takes up to a minute, and a node can be in one only.
const partitionsPerHour = 180

// Partitions returns a plan in which nodes are cut off for longer than their
// lease, again and again, with a change of leaders inside every third partition.
// Work goes on all the time, and most of it may be repeated on another node.
func Partitions(seed uint64, length int64) Plan {
	c := newConfig(seed)
	p := Plan{Seed: seed, Length: length, Partitions: true}
	d := sim.Draws(seed).Of(luckPlan, 1)
	p.bursts(&d, c)
	p.quotaChanges(c)
	p.trainings(c)
	free := make([]int64, c.nodes) // when each node is back
	for i := range length * partitionsPerHour / hour {
		at := 10*second + i*hour/partitionsPerHour
		node := int(d.N(int64(c.nodes)))
		lasts := d.Between(c.settings.LeaseNs+c.settings.LeaseMarginNs+second, 45*second)
		if free[node] > at {
			continue
		}
		switch i % 5 {
		case 0: // it is back just as it is being given up
			patience := c.settings.LeaseNs + c.settings.LeaseMarginNs
			lasts = patience + d.Between(-1500, 1500)*millisecond
			p.add(Event{At: at + patience - 2*second, Kind: SlowCommit, For: 5 * second, Luck: d.Uint64()})
		case 1: // the answer to its last renewal is late
			p.add(Event{At: at - 5*second, Kind: Delay, For: 8 * second, Luck: d.Uint64()})
		}
		free[node] = at + lasts + 15*second
		kind := Cut
		if d.Chance(300_000) {
			kind = CutOneWay
		}
		p.add(Event{At: at, Kind: kind, On: node, For: lasts, Luck: d.Uint64()})
		if i%4 == 0 {
			p.add(Event{At: at, Kind: CutTrainer, On: int(d.N(hosts)), For: lasts, Luck: d.Uint64()})
		}
		if i%3 == 0 {
			p.add(Event{At: at + d.N(lasts), Kind: Depose, For: d.Between(100*millisecond, 20*second), Luck: d.Uint64()})
		}
	}
	slices.SortStableFunc(p.Events, func(a, b Event) int { return cmp.Compare(a.At, b.At) })
	return p
}
