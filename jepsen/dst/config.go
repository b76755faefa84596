package dst

import (
	"slices"

	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
	"rota/internal/sim"
)

const (
	clients  = 5
	watchers = 3
)

// Names of draws. Those of nodes, links and servers have their numbers added.
const (
	luckConfig uint64 = 1 + iota
	luckPlan
	luckLeader
	luckWatch
	luckClient  uint64 = 1 << 8
	luckServer  uint64 = 1 << 12
	luckNode    uint64 = 1 << 16
	luckLink    uint64 = 1 << 20
	luckLinkNth uint64 = 1 << 8
	luckLabels  uint64 = 1 << 24
)

// config is the cluster of a seed: what stays when its plan shrinks.
type config struct {
	seed           uint64
	servers, nodes int
	cores          []([]int) // of each node, by NUMA node
	memory         []uint64
	pools          []string // of each node
	gpus           []*logv1.GpuInventory
	bandwidth      []uint64
	resizes        []bool   // of each node: it can change the cores of what runs
	shareAfter     []int64  // of each node: the age from which attempts may share cores; 0: never
	containers     []bool   // of each node: it runs containers
	caches         []uint64 // of each node: bytes of its cache for KV caches
	ppm            []int64  // what the clocks of servers, then of nodes gain
	settings       *logv1.Settings
	elastic        bool          // clients say how long actions take, or name classes
	builds         []state.Level // of each server: the newest feature level that it knows
}

// driftPPMMax is well within what the margin of a lease allows: clocks that
// differ by 6 % use up 0.6 s of a lease of 10 s, whose two margins are 4 s.
const driftPPMMax = 30_000

func newConfig(seed uint64) config {
	d := sim.Draws(seed).Of(luckConfig, 0)
	c := config{seed: seed, servers: 3, nodes: int(d.Between(2, 5))}
	if d.Chance(250_000) {
		c.servers = 5
	}
	for i := range c.nodes {
		numa := []int{int(d.Between(2, 6))}
		if d.Chance(400_000) {
			numa = append(numa, numa[0])
		}
		c.cores = append(c.cores, numa)
		c.memory = append(c.memory, uint64(d.Between(8, 64))<<20)
		pool := "default"
		if i > 0 && d.Chance(250_000) {
			pool = "other"
		}
		c.pools = append(c.pools, pool)
	}
	c.newGPUs()
	for range c.servers + c.nodes {
		c.ppm = append(c.ppm, d.Between(-driftPPMMax, driftPPMMax))
	}
	c.settings = newSettings(&d)
	newLedgerSettings(seed, c.settings)
	c.builds = newBuilds(seed, c.servers)
	resizing := sim.Draws(seed).Of(luckConfig, 3)
	for range c.nodes {
		c.resizes = append(c.resizes, resizing.Chance(700_000))
	}
	sharing := sim.Draws(seed).Of(luckConfig, 6)
	for range c.nodes {
		after := int64(0)
		if sharing.Chance(500_000) {
			after = sharing.Skewed(10_000_000, 5_000_000_000)
		}
		c.shareAfter = append(c.shareAfter, after)
	}
	caches := sim.Draws(seed).Of(luckConfig, 4)
	for range c.nodes {
		c.caches = append(c.caches, uint64(min(caches.N(6), 1))<<30) // one in six has none
	}
	boxes := sim.Draws(seed).Of(luckConfig, 5)
	for range c.nodes {
		c.containers = append(c.containers, boxes.Chance(600_000))
	}
	elastic := sim.Draws(seed).Of(luckConfig, 2)
	c.elastic = elastic.Chance(700_000)
	return c
}

// newGPUs gives GPUs to some of the nodes, and bandwidth to most: draws of their
// own.
func (c *config) newGPUs() {
	d := sim.Draws(c.seed).Of(luckConfig, 2)
	some := d.Chance(700_000)
	for range c.nodes {
		var g *logv1.GpuInventory
		if some && d.Chance(700_000) {
			g = &logv1.GpuInventory{Class: "H100", Count: uint32(1) << d.Between(0, 3), MemoryBytes: 80}
			if d.Chance(200_000) {
				g = &logv1.GpuInventory{Class: "L4", Count: uint32(d.Between(1, 12)), MemoryBytes: 24}
			}
		}
		c.gpus = append(c.gpus, g)
		c.bandwidth = append(c.bandwidth, uint64(d.Between(0, 4))*500)
	}
}

// relabel is how long a node says the same of itself.
const relabel = 10 * minute

// labels are what a node says of itself when it registers at a time: mostly where it
// is. Now and then it turns out to be somewhere else.
func (c *config) labels(node int, at int64) (labels []*logv1.Label) {
	d := sim.Draws(c.seed).Of(luckLabels+uint64(node), at/relabel)
	if d.Chance(800_000) {
		labels = append(labels, &logv1.Label{Key: "rack", Value: []string{"r1", "r2", "r3"}[node%3]})
	}
	if d.Chance(900_000) {
		labels = append(labels, &logv1.Label{Key: "zone", Value: []string{"a", "b"}[d.N(2)]})
	}
	return labels
}

// addNeeds has some actions ask for GPUs, and some for bandwidth. A few ask for
// what there is not.
func (c *config) addNeeds(d *sim.Draw, a *logv1.Action, pool string) {
	n := &logv1.Needs{}
	node := int(d.N(int64(c.nodes)))
	impossible := d.Chance(10_000)
	if b := c.bandwidth[node]; c.pools[node] == pool && b > 0 && a.TrajectoryId == 0 && d.Chance(300_000) || impossible {
		n.BandwidthBps = uint64(d.Skewed(1, max(1, int64(b))))
	}
	if g := c.gpus[node]; a.TrajectoryId == 0 && (g != nil && c.pools[node] == pool || impossible) && d.Chance(600_000) {
		n.Gpus = newGPUDemand(d, g)
		a.CoresMin = uint32(d.Between(0, 2))
		a.CoresMax = a.CoresMin
		a.MemoryBytes /= 4
		if d.Chance(400_000) {
			n.Profile = &logv1.Profile{SingleNs: d.Skewed(second, 60*second), Serial: true, SerialPpm: d.Between(0, 500_000)}
		}
	}
	if n.Gpus != nil || n.BandwidthBps > 0 {
		a.Needs = n
	}
}

// newGPUDemand asks for GPUs like those of a node, if there are any.
func newGPUDemand(d *sim.Draw, like *logv1.GpuInventory) *logv1.Gpus {
	g := &logv1.Gpus{Class: like.GetClass(), MemoryBytes: uint64(d.Between(0, 4)) * 6}
	first, last := d.Skewed(0, 3), d.Between(0, 3)
	for first > 0 && uint32(1)<<first > like.GetCount() {
		first--
	}
	for level := first; level <= max(first, last); level++ {
		g.Degrees = append(g.Degrees, uint32(1)<<level)
	}
	if d.Chance(700_000) {
		g.Model = models[d.N(int64(len(models)))]
		if g.SetupNs = d.Skewed(0, 20*second); g.SetupNs%3 == 0 {
			g.SetupNs = 0 // what was measured of the model's engine counts
		}
	}
	return g
}

// newBuilds draws what the servers run when the cluster begins: all the same
// build, or some a newer one. The first bootstraps the cluster: if its build is
// newer, those that cannot follow are a minority.
func newBuilds(seed uint64, servers int) []state.Level {
	d := sim.Draws(seed).Of(luckConfig, 1)
	builds := slices.Repeat([]state.Level{state.LevelMax}, servers)
	mixed := d.Chance(600_000)
	for i := range builds {
		if mixed && d.Chance(500_000) {
			builds[i] = state.LevelMax + 1
		}
	}
	if builds[0] > state.LevelMax {
		for i := range servers/2 + 1 {
			builds[i] = state.LevelMax + 1
		}
	}
	if d.Chance(300_000) { // from the release before on
		for i := range builds {
			builds[i]--
		}
	}
	return builds
}

// pool draws the pool of an action: of any node, or now and then one that does
// not exist.
func (c *config) pool(d *sim.Draw) string {
	if d.Chance(20_000) {
		return "nowhere"
	}
	return c.pools[d.N(int64(len(c.pools)))]
}

// widest is the number of cores of the largest node of a pool.
func (c *config) widest(pool string) (cores int64) {
	for i, numa := range c.cores {
		n := int64(0)
		for _, k := range numa {
			n += int64(k)
		}
		if c.pools[i] == pool {
			cores = max(cores, n)
		}
	}
	return max(cores, 1)
}

// newSettings draws limits that are small, so that they are met.
func newSettings(d *sim.Draw) *logv1.Settings {
	s := &logv1.Settings{
		LeaseNs: 10 * second, LeaseMarginNs: 2 * second,
		RetentionNs:     d.Between(20, 60) * second,
		EventsMax:       uint32(d.Between(512, 1024)),
		BypassMax:       uint32(d.Between(1, 16)),
		BypassNsMax:     d.Between(1, 20) * second,
		QueueActionsMax: uint32(d.Between(40, 400)),
		TrajectoriesMax: uint32(d.Between(5, 50)),
		RequestsMax:     uint32(d.Between(60, 600)), // of one namespace half as many
	}
	if d.Chance(300_000) {
		s.RetentionBytesMax = uint64(d.Between(4, 32)) << 10
	}
	return s
}
