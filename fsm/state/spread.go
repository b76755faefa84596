package state

import (
	"cmp"
	"fmt"
)

// SpreadLabelsMax bounds the labels over which open trajectories are spread: the
// nodes are kept in order once for each of them.
const SpreadLabelsMax = 16

// Spread keeps the trajectories of a group apart: in many failure domains, which
// are the values of a label of nodes.
type Spread struct {
	Group, Label string // both empty: it may live anywhere
	// Domain is what its node says while the trajectory is open, and stays
	// afterwards. Nodes without the label are one domain, the empty one.
	Domain string
}

func (r *Spread) code(c *codec) {
	c.text(&r.Group)
	c.text(&r.Label)
	c.text(&r.Domain)
}

type (
	// groupCount counts the open trajectories of a group in a domain.
	groupCount struct {
		namespace            NamespaceID
		group, label, domain string
		trajectories         int
	}
	// labelCount counts the trajectories of a namespace that have not ended and are spread over a
	// label.
	labelCount struct {
		namespace    NamespaceID
		label        string
		trajectories int
	}
	// domainRank orders the usable nodes of a pool by domain, and within one as
	// memoryRank does.
	domainRank struct {
		label, domain string
		memoryRank
	}
)

func (a groupCount) less(b groupCount) bool {
	return cmp.Or(cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.group, b.group),
		cmp.Compare(a.label, b.label), cmp.Compare(a.domain, b.domain)) < 0
}

func (a labelCount) less(b labelCount) bool {
	return cmp.Or(cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.label, b.label)) < 0
}

func (a domainRank) less(b domainRank) bool {
	if a.pool != b.pool {
		return a.pool < b.pool
	}
	if c := cmp.Or(cmp.Compare(a.label, b.label), cmp.Compare(a.domain, b.domain)); c != 0 {
		return c < 0
	}
	return a.memoryRank.less(b.memoryRank)
}

// Label returns the value of a label, empty if the node does not have it.
func (r *Node) Label(key string) string {
	for i := range r.Labels {
		if r.Labels[i].Key == key {
			return r.Labels[i].Value
		}
	}
	return ""
}

// Roomier reports whether a trajectory should rather go to the node than to
// another of its pool: it has more free memory, or among equals fewer
// trajectories per core.
func (r *Node) Roomier(o *Node) bool { return r.memoryRank().less(o.memoryRank()) }

func (r *Node) domainRank(label string) domainRank {
	return domainRank{label, r.Label(label), r.memoryRank()}
}

// InDomain returns how many open trajectories of t's group there are in a domain
// of the label that t is spread over.
func (s *State) InDomain(t *Trajectory, domain string) int {
	k, _ := db(s).index.groups.Get(groupCount{namespace: t.Namespace, group: t.Spread.Group, label: t.Spread.Label, domain: domain})
	return k.trajectories
}

// Spreads reports whether a trajectory that has not ended is spread over a label,
// and over how many labels all of them are.
func (s *State) Spreads(label string) (already bool, labels int) {
	_, already = db(s).index.spreadLabels.Get(label)
	return already, db(s).index.spreadLabels.Len()
}

// SpreadsOf returns over how many labels the trajectories of a namespace that have not ended are
// spread.
func (s *State) SpreadsOf(ns NamespaceID) (labels int) {
	db(s).index.nsSpreadLabels.Ascend(labelCount{namespace: ns}, func(k labelCount) bool {
		if k.namespace == ns {
			labels++
		}
		return k.namespace == ns
	})
	return labels
}

// Domains visits the domains of the usable nodes of a pool: of each the node that
// comes first by free memory. The label is one that a trajectory is spread over
// which has not ended.
func (s *State) Domains(pool PoolID, label string, fn func(*Node) bool) {
	next := domainRank{label: label, memoryRank: memoryRank{pool: pool, free: 1<<64 - 1}}
	for {
		var hit domainRank
		db(s).index.domains.Ascend(next, func(k domainRank) bool {
			hit = k
			return false
		})
		if hit.pool != pool || hit.label != label || !fn(db(s).nodes.get(hit.node)) {
			return
		}
		next.domain = hit.domain
		next.free, next.load, next.node = 0, 1<<64-1, 1<<32-1 // after all of it
	}
}

// NodesOfDomain visits the usable nodes of a pool in a domain in the order of
// NodesByFreeMemory.
func (s *State) NodesOfDomain(pool PoolID, label, domain string, fn func(*Node) bool) {
	first := domainRank{label, domain, memoryRank{pool: pool, free: 1<<64 - 1}}
	db(s).index.domains.Ascend(first, func(k domainRank) bool {
		return k.pool == pool && k.label == label && k.domain == domain && fn(db(s).nodes.get(k.node))
	})
}

// reindexDomains moves a node that changed within its domains.
func (s *State) reindexDomains(was, is *Node) {
	db(s).index.spreadLabels.Scan(func(label string, _ int) bool {
		move(&db(s).index.domains, was, is, func(n *Node) domainRank { return n.domainRank(label) })
		return true
	})
}

// reindexSpread counts a trajectory that changed where it is now, before it is no
// longer counted where it was: else a label would be forgotten and learned again.
func (s *State) reindexSpread(was, is *Trajectory) {
	if was != nil && is != nil && was.State == is.State && was.Spread == is.Spread {
		return
	}
	s.countInGroup(is, 1)
	s.countLabel(is, 1)
	s.countInGroup(was, -1)
	s.countLabel(was, -1)
}

func (s *State) countInGroup(r *Trajectory, by int) {
	if r == nil || r.State != TrajectoryOpen || r.Spread.Group == "" {
		return
	}
	k := groupCount{r.Namespace, r.Spread.Group, r.Spread.Label, r.Spread.Domain, s.InDomain(r, r.Spread.Domain) + by}
	if k.trajectories == 0 {
		db(s).index.groups.Delete(k)
	} else {
		db(s).index.groups.Set(k)
	}
}

// countLabel counts the trajectories that are spread over a label, or will be. The
// first has the nodes put in order, the last has that order forgotten.
func (s *State) countLabel(r *Trajectory, by int) {
	if r == nil || r.State.Ended() || r.Spread.Group == "" {
		return
	}
	label := r.Spread.Label
	of, _ := db(s).index.nsSpreadLabels.Get(labelCount{namespace: r.Namespace, label: label})
	if n := of.trajectories + by; n == 0 {
		db(s).index.nsSpreadLabels.Delete(of)
	} else {
		db(s).index.nsSpreadLabels.Set(labelCount{r.Namespace, label, n})
	}
	users, _ := db(s).index.spreadLabels.Get(label)
	switch {
	case users == 0:
		s.eachUsable(func(n *Node) { db(s).index.domains.Set(n.domainRank(label)) })
	case users+by == 0:
		s.eachUsable(func(n *Node) { db(s).index.domains.Delete(n.domainRank(label)) })
		db(s).index.spreadLabels.Delete(label)
		return
	}
	db(s).index.spreadLabels.Set(label, users+by)
}

func (s *State) eachUsable(fn func(*Node)) {
	s.Nodes(0, func(n *Node) bool {
		if n.Usable() {
			fn(n)
		}
		return true
	})
}

// checkSpread: an open trajectory is counted in the domain that its node is in.
func (s *State) checkSpread(t *Trajectory) error {
	if (t.Spread.Group == "") != (t.Spread.Label == "") {
		return fmt.Errorf("trajectory %d has group %q and label %q", t.ID, t.Spread.Group, t.Spread.Label)
	}
	if n := s.Node(t.Node); t.State == TrajectoryOpen && t.Spread.Group != "" && (n == nil || n.Label(t.Spread.Label) != t.Spread.Domain) {
		return fmt.Errorf("trajectory %d is counted in domain %q, its node %d is not in that", t.ID, t.Spread.Domain, t.Node)
	}
	return nil
}
