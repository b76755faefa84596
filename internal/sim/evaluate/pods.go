package evaluate

import (
	"hash/fnv"

	"rota/internal/sim"
	"rota/internal/sim/workload"
)

// pods is one pod for each trajectory, for as long as it lives. The control plane
// creates them in the order of arrival and at its rate, the scheduler puts each
// on the node with the fewest requests, and there it starts. Its processes share
// the node with those of all other pods.
type pods struct {
	w       *world
	p       *workload.Pods
	units   int64 // of a reward
	nodes   []*podNode
	of      map[*rollout]*pod
	create  int64  // when the control plane can create the next
	pending []*pod // created, but no node has room
	luck    uint64
}

type podNode struct {
	cpu    *share
	milli  int64 // not requested
	memory int64 // not requested
}

type pod struct {
	r       *rollout
	node    *podNode
	ready   bool
	waiting *call
	gone    bool
}

func newPods(w *world, p *workload.Pods) *pods {
	params := w.in.generator.Params()
	k := &pods{w: w, p: p, units: 1, of: make(map[*rollout]*pod)}
	if u := params.Baseline.RewardUnits; u != nil {
		k.units = int64(u.Value)
	}
	for _, n := range params.Cluster.Nodes() {
		k.nodes = append(k.nodes, &podNode{newShare(&w.loop, n.Cores()), n.Cores() * 1000, n.Memory})
	}
	name := fnv.New64a()
	name.Write([]byte("pod start"))
	k.luck = name.Sum64()
	return k
}

func (k *pods) begin(r *rollout) {
	p := &pod{r: r}
	k.of[r] = p
	k.create = max(k.create, k.w.loop.Now())
	k.w.loop.At(k.create, func() {
		if !p.gone && !k.place(p) {
			k.pending = append(k.pending, p)
		}
	})
	k.create += 1_000_000_000 / max(1, int64(k.p.Rate.Value))
}

// place finds a node and lets the pod start there.
func (k *pods) place(p *pod) bool {
	request := int64(k.p.RequestMilli.Value)
	for _, n := range k.nodes {
		if n.milli >= request && n.memory >= p.r.Memory &&
			(p.node == nil || n.milli > p.node.milli || n.milli == p.node.milli && n.memory > p.node.memory) {
			p.node = n
		}
	}
	if p.node == nil {
		return false
	}
	p.node.milli -= request
	p.node.memory -= p.r.Memory
	d := sim.Draws(k.w.in.Seed).Of(k.luck+uint64(p.r.task), p.r.key())
	k.w.loop.After(k.p.Start.Value.At(d.Uint64()), func() {
		p.ready = true
		if p.waiting != nil {
			k.run(p, p.waiting)
		}
	})
	return true
}

func (k *pods) submit(c *call) {
	if p := k.of[c.r]; p.ready {
		k.run(p, c)
	} else {
		p.waiting = c
	}
}

// run executes a call in its pod. It has as many processes as it has units, and
// no more speed than the pod's limit.
func (k *pods) run(p *pod, c *call) {
	units := c.Widest(1)
	if c.Elastic() {
		units = c.Widest(k.units)
	}
	c.started = k.w.loop.Now()
	c.queue += c.started - c.submitted
	work := c.Duration(units) * units
	p.node.cpu.add(min(units*1000, int64(k.p.LimitMilli.Value)), work, func() {
		c.exec += k.w.loop.Now() - c.started
		c.busy += work
		k.w.ended(c, true)
	})
}

// end deletes the pod, which may make room for others.
func (k *pods) end(r *rollout) {
	p := k.of[r]
	delete(k.of, r)
	if p.node == nil {
		p.gone = true
	} else {
		p.node.milli += int64(k.p.RequestMilli.Value)
		p.node.memory += r.Memory
	}
	left := k.pending[:0]
	for _, q := range k.pending {
		if !q.gone && !k.place(q) {
			left = append(left, q)
		}
	}
	clear(k.pending[len(left):])
	k.pending = left
}

func (k *pods) capacity() Capacity {
	return Capacity{"cpu", k.w.in.Params().Cluster.Cores()}
}
