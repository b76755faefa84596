package fsm

import (
	"fmt"
	"math"

	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
	"rota/sched"
)

// defaultName is the namespace and the pool that always exist.
const defaultName = "default"

const (
	namespacesMax = 1024
	// poolsMax bounds what agents create when they register.
	poolsMax = 64
)

// bootstrap gives the cluster its identity. Doing it again with the same
// identity changes nothing.
func (x *execution) bootstrap(c *logv1.Bootstrap) *logv1.Result {
	m := *x.s.Meta()
	switch {
	case m.ClusterID == c.ClusterId && c.ClusterId != "":
		return &logv1.Result{Replayed: true}
	case m.ClusterID != "":
		return refuse(codeFailedPrecondition, "BOOTSTRAPPED", "the cluster has been bootstrapped already, as %s", m.ClusterID)
	case c.ClusterId == "" || len(c.ClusterId) > nameBytesMax:
		return refuse(codeInvalidArgument, "INVALID", "the cluster ID must have 1 to %d bytes", nameBytesMax)
	}
	m.ClusterID = c.ClusterId
	m.Level, m.Release = state.Level(c.Level), c.Release
	if m.Level == 0 {
		m.Level = levelUnsaid
	}
	x.deciders.mustKnow(m.Level, m.Release)
	m.Settings = settings(c.Settings).WithDefaults()
	if err := checkLedger(&m.Settings); err != nil {
		return refuse(codeInvalidArgument, "INVALID", "the settings of the ledger: %v", err)
	}
	x.s.SetMeta(m)
	x.addNamespace(defaultName)
	x.poolNamed(defaultName)
	return &logv1.Result{Count: 1}
}

func settings(c *logv1.Settings) state.Settings {
	return state.Settings{
		LeaseNS: c.GetLeaseNs(), LeaseMarginNS: c.GetLeaseMarginNs(),
		QueueActionsMax: c.GetQueueActionsMax(), QueueBytesMax: c.GetQueueBytesMax(),
		TrajectoriesMax: c.GetTrajectoriesMax(),
		RetentionNS:     c.GetRetentionNs(), RetentionBytesMax: c.GetRetentionBytesMax(),
		EventsMax: c.GetEventsMax(), BypassMax: c.GetBypassMax(), BypassNSMax: c.GetBypassNsMax(),
		RequestsMax:  c.GetRequestsMax(),
		LedgerSlotNS: c.GetLedgerSlotNs(), LedgerSlots: c.GetLedgerSlots(), LedgerStretchPPM: c.GetLedgerStretchPpm(),
		LedgerDutyPPM: c.GetLedgerDutyPpm(), LedgerPolicy: state.PlacementPolicy(min(c.GetLedgerPolicy(), math.MaxUint8)),
	}
}

// ledgerSlotNSMax keeps the times of slots within 64 bits.
const ledgerSlotNSMax = 3600 * 1_000_000_000

// checkLedger says what is wrong with the settings of the ledger.
func checkLedger(s *state.Settings) error {
	switch {
	case s.LedgerSlotNS < 1_000_000 || s.LedgerSlotNS > ledgerSlotNSMax:
		return fmt.Errorf("a slot is %d ns long, and must be 1 ms to 1 h", s.LedgerSlotNS)
	case !sched.KnownPolicy(s.LedgerPolicy):
		return fmt.Errorf("policy %d is not known", s.LedgerPolicy)
	}
	return sched.CheckLedger(s)
}

func (x *execution) createNamespace(c *logv1.CreateNamespace) *logv1.Result {
	switch {
	case c.Name == "" || len(c.Name) > nameBytesMax:
		return refuse(codeInvalidArgument, "INVALID", "a namespace needs a name of at most %d bytes", nameBytesMax)
	case x.s.NamespaceByName(c.Name) != nil:
		return refuse(codeAlreadyExists, "NAMESPACE_EXISTS", "namespace %q exists already", c.Name)
	case x.s.NamespaceCount() >= namespacesMax:
		return refuse(codeResourceExhausted, "TOO_MANY_NAMESPACES", "there are %d namespaces already, which is the limit; delete some with: rota operator namespace delete", namespacesMax)
	}
	x.addNamespace(c.Name)
	return &logv1.Result{Count: 1}
}

func (x *execution) addNamespace(name string) {
	m := *x.s.Meta()
	m.LastNamespace++
	x.s.SetMeta(m)
	x.s.PutNamespace(&state.Namespace{ID: m.LastNamespace, Name: name})
}

// deleteNamespace forgets a namespace that nothing refers to.
func (x *execution) deleteNamespace(c *logv1.DeleteNamespace) *logv1.Result {
	ns, r := x.namespace(c.Name)
	if r != nil {
		return r
	}
	if ns.Name == defaultName {
		return refuse(codeFailedPrecondition, "NAMESPACE_IN_USE", "namespace %q belongs to all clients: it cannot be deleted", ns.Name)
	}
	if n := x.s.NamespaceReferrers(ns.ID); n > 0 {
		return refuse(codeFailedPrecondition, "NAMESPACE_IN_USE",
			"namespace %q has %d actions, trajectories, rollouts, migrations, jobs, policies, classes or snapshots of files: delete its jobs, policies, classes and snapshots (rota snapshot delete), and wait until what has ended is forgotten", ns.Name, n)
	}
	if what := x.runsIn(ns.Name); what != "" {
		return refuse(codeFailedPrecondition, "NAMESPACE_IN_USE", "%s runs in namespace %q: remove it first", what, ns.Name)
	}
	x.s.DeleteNamespace(ns.ID)
	return &logv1.Result{Count: 1}
}

// runsIn names a reward function or a pool of workers that submits its replicas to a
// namespace, also while it has none; empty if there is none.
func (x *execution) runsIn(namespace string) (what string) {
	x.s.Rewards("", func(r *state.Reward) bool {
		if r.Namespace == namespace {
			what = fmt.Sprintf("reward function %q", r.Name)
		}
		return what == ""
	})
	x.s.WorkerPools(func(p *state.WorkerPool) bool {
		if what == "" && p.Namespace == namespace {
			what = fmt.Sprintf("worker pool %q", p.Name)
		}
		return what == ""
	})
	return what
}

// mayJoinPool refuses a node whose pool would be one too many.
func (x *execution) mayJoinPool(name string) *logv1.Result {
	if name == "" || x.s.PoolByName(name) != nil || x.s.PoolCount() < poolsMax {
		return nil
	}
	return refuse(codeResourceExhausted, "TOO_MANY_POOLS",
		"there are %d pools already, which is the limit: register the node in one of them, or delete one with: rota operator pool delete", poolsMax)
}

// deletePool forgets a pool that nothing refers to.
func (x *execution) deletePool(c *logv1.DeletePool) *logv1.Result {
	p := x.s.PoolByName(c.Name)
	if p == nil {
		return noPool(c.Name)
	}
	if why := x.poolInUse(p); why != "" {
		return refuse(codeFailedPrecondition, "POOL_IN_USE", "pool %q cannot be deleted: %s", p.Name, why)
	}
	x.s.DeletePool(p.ID)
	return &logv1.Result{Count: 1}
}

// leavePool forgets a pool when its last node has moved to another one, if nothing
// else refers to it. So a node has one pool at a time, however often it registers.
func (x *execution) leavePool(id state.PoolID) {
	if p := x.s.Pool(id); p != nil && x.poolInUse(p) == "" {
		x.s.DeletePool(id)
	}
}

// poolInUse says why a pool has to stay; empty if it need not.
func (x *execution) poolInUse(p *state.Pool) (why string) {
	switch n := x.s.PoolReferrers(p.ID); {
	case p.Name == defaultName:
		return "it is the pool of all that name none"
	case p.Halted != "":
		return "it is halted: look at why, and resume it first"
	case n > 0:
		return fmt.Sprintf("%d nodes, trajectories or actions are in it; what has ended counts until it is forgotten", n)
	}
	x.s.NodeGroups(func(g *state.NodeGroup) bool {
		if g.HookPool == p.Name {
			why = fmt.Sprintf("node group %q runs its hooks there", g.Name)
		}
		return why == ""
	})
	return why
}

func noPool(name string) *logv1.Result {
	return refuse(codeNotFound, "POOL_NOT_FOUND", "pool %q does not exist; see: rota operator pool list", name)
}

// poolNamed returns the pool of a node that registers, which comes into being
// with its first node.
func (x *execution) poolNamed(name string) state.PoolID {
	if name == "" {
		name = defaultName
	}
	if p := x.s.PoolByName(name); p != nil {
		return p.ID
	}
	m := *x.s.Meta()
	m.LastPool++
	x.s.SetMeta(m)
	x.s.PutPool(&state.Pool{ID: m.LastPool, Name: name})
	return m.LastPool
}

// resumePool lets a halted pool schedule again.
func (x *execution) resumePool(c *logv1.ResumePool) *logv1.Result {
	p := x.s.PoolByName(c.Name)
	if p == nil {
		return noPool(c.Name)
	}
	if p.Halted == "" {
		return &logv1.Result{}
	}
	x.s.PutPool(&state.Pool{ID: p.ID, Name: p.Name})
	x.s.Unpark()
	x.recallQuotas() // its actions were set aside
	x.s.Nodes(0, func(n *state.Node) bool {
		if n.Pool == p.ID {
			x.coresFreed(n)
		}
		return true
	})
	return &logv1.Result{Count: 1}
}
