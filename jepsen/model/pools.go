package model

import (
	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
)

// inUse: a pool that cannot be deleted. It is the default one, halted, or there is
// something in it or of it, that which has ended and is remembered included.
func (m *Model) inUse(p *pool) bool {
	if p.name == defaultName || p.halted || len(p.nodes) > 0 {
		return true
	}
	for _, a := range m.actions {
		if a.pool == p {
			return true
		}
	}
	for _, t := range m.trajectories {
		if t.pool == p {
			return true
		}
	}
	for _, g := range m.groups {
		if g.HookPool == p.name {
			return true
		}
	}
	return false
}

func (m *Model) deletePool(c *logv1.DeletePool, got *logv1.Result) error {
	p := m.pools[c.Name]
	if p == nil {
		return refused(got, "POOL_NOT_FOUND")
	}
	var v verdict
	v.refuse(m.inUse(p), "POOL_IN_USE")
	if ok, err := v.judge(got); !ok {
		return err
	}
	m.forgetPool(p)
	return result(got, &logv1.Result{Count: 1})
}

func (m *Model) forgetPool(p *pool) {
	delete(m.pools, p.name)
	delete(m.poolByID, p.id)
	m.forgetPoolShares(p.id)
}

// namespaceUsed: something is of a namespace, that which has ended and is remembered
// included.
func (m *Model) namespaceUsed(ns state.NamespaceID) bool {
	for _, a := range m.actions {
		if a.Namespace == ns {
			return true
		}
	}
	for _, t := range m.trajectories {
		if t.Namespace == ns {
			return true
		}
	}
	for _, row := range m.migrations.all {
		if row.Namespace == ns {
			return true
		}
	}
	for _, r := range m.snapshots.all {
		if r.Namespace == ns {
			return true
		}
	}
	for _, r := range m.rollouts.all {
		if r.Namespace == ns {
			return true
		}
	}
	for _, p := range m.rollouts.policies {
		if p.Namespace == ns {
			return true
		}
	}
	for name := range m.jobs {
		if name.namespace == ns {
			return true
		}
	}
	for name := range m.classes {
		if name.namespace == ns {
			return true
		}
	}
	return false
}

// runsIn: a reward function or a pool of workers submits its replicas there.
func (m *Model) runsIn(namespace string) bool {
	for _, r := range m.rewards.all {
		if r.Namespace == namespace {
			return true
		}
	}
	for _, p := range m.workers.pools {
		if p.Namespace == namespace {
			return true
		}
	}
	return false
}

func (m *Model) deleteNamespace(c *logv1.DeleteNamespace, got *logv1.Result) error {
	name := orDefault(c.Name)
	ns := m.namespaces[name]
	if ns == 0 {
		return refused(got, "NAMESPACE_NOT_FOUND")
	}
	var v verdict
	v.refuse(name == defaultName || m.namespaceUsed(ns) || m.runsIn(name), "NAMESPACE_IN_USE")
	if ok, err := v.judge(got); !ok {
		return err
	}
	delete(m.namespaces, name)
	delete(m.uses, ns)
	m.forgetNamespaceShares(ns)
	return result(got, &logv1.Result{Count: 1})
}
