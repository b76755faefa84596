package fsm

import (
	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
)

// policy finds a policy, or makes it: it exists from the first that names it.
func (x *execution) policy(name string) (*state.Policy, *logv1.Result) {
	switch p := x.s.Policy(name); {
	case p != nil:
		return p, nil
	case name == "" || len(name) > state.PolicyNameBytesMax:
		return nil, refuse(codeInvalidArgument, "INVALID", "a policy needs a name of 1 to %d bytes; this one has %d", state.PolicyNameBytesMax, len(name))
	case x.s.PolicyCount() >= state.PoliciesMax:
		return nil, refuse(codeResourceExhausted, "TOO_MANY_POLICIES", "there are %d policies already, which is the limit; use one of them again", state.PoliciesMax)
	}
	p := &state.Policy{Name: name}
	x.s.PutPolicy(p)
	return p, nil
}

// claim finds a policy for a namespace, which is nil for none. It becomes that namespace's if it
// belongs to none, or is new. owner is where the caller has the right to it.
func (x *execution) claim(name string, ns *state.Namespace, owner string) (*state.Policy, *logv1.Result) {
	is := ns
	if known := x.s.Policy(name); known != nil {
		is = x.s.OwnerOf(known)
	} else if ns != nil && !x.mayHaveMore(state.PoliciesMax, x.s.PolicyCount(), func() int { return x.s.PoliciesOf(ns.ID) }) {
		return nil, refuse(codeResourceExhausted, "TOO_MANY_POLICIES", "namespace %q has %d policies, and other namespaces may have the %d that are left; use one of them again",
			ns.Name, x.s.PoliciesOf(ns.ID), state.PoliciesMax-x.s.PolicyCount())
	}
	if r := belongs(name, is, owner); r != nil {
		return nil, r
	}
	p, r := x.policy(name)
	if r != nil || ns == nil || p.Namespace != 0 {
		return p, r
	}
	u := *p
	u.Namespace = ns.ID
	x.s.PutPolicy(&u)
	return &u, nil
}

// belongs refuses a policy of one namespace, or of none, whose caller has rights in another one;
// without owner, the caller has them everywhere.
func belongs(policy string, is *state.Namespace, owner string) *logv1.Result {
	if owner == "" || is != nil && is.Name == owner {
		return nil
	}
	return refuse(codePermissionDenied, "POLICY_NOT_OWNED", "policy %q does not belong to a namespace in which the caller has the right to it: take another name, or ask an operator for the right", policy)
}

// ownPolicy finds a policy that something has named, and to which the caller has the right.
func (x *execution) ownPolicy(name, owner string) (*state.Policy, *logv1.Result) {
	p, r := x.existingPolicy(name)
	if r == nil {
		r = belongs(name, x.s.OwnerOf(p), owner)
	}
	return p, r
}

// existingPolicy finds a policy that something has named.
func (x *execution) existingPolicy(name string) (*state.Policy, *logv1.Result) {
	p := x.s.Policy(name)
	if p == nil {
		return nil, refuse(codeNotFound, "POLICY_NOT_FOUND", "policy %q does not exist: no rollout, worker or version has named it yet; see: rota policy list", name)
	}
	return p, nil
}

// publishes finds the policy of a version.
func (x *execution) publishes(c *logv1.PublishVersion) (*state.Policy, *logv1.Result) {
	if c.Namespace == "" {
		return x.claim(c.Policy, nil, c.PolicyOwner)
	}
	ns, r := x.namespace(c.Namespace)
	if r != nil {
		return nil, r
	}
	return x.claim(c.Policy, ns, c.PolicyOwner)
}

// publishVersion makes a version the current one.
func (x *execution) publishVersion(c *logv1.PublishVersion) *logv1.Result {
	if c.Version == 0 {
		return refuse(codeInvalidArgument, "INVALID", "a version must be 1 or more; publish the number of the weights")
	}
	if p := x.s.Policy(c.Policy); p != nil && c.Version < p.Version {
		if r := belongs(p.Name, x.s.OwnerOf(p), c.PolicyOwner); r != nil {
			return r
		}
		return refuse(codeFailedPrecondition, "VERSION_OLD", "policy %q has version %d already; versions only grow, and %d is less", p.Name, p.Version, c.Version)
	}
	p, r := x.publishes(c)
	switch {
	case r != nil:
		return r
	case c.Version == p.Version:
		return &logv1.Result{Replayed: true}
	}
	u := *p
	u.Version, u.PublishedAt = c.Version, x.now()
	x.s.PutPolicy(&u)
	x.versionPublished(u.Name)
	x.policiesChanged = true
	return &logv1.Result{Count: x.outdate(&u)}
}

// outdate has the rollouts looked at that have something too old for the version of a policy, and
// returns how many trajectories are closed by that.
func (x *execution) outdate(p *state.Policy) (closed uint32) {
	var outdated []state.RolloutID
	x.s.RolloutsOf(p.Name, func(r *state.Rollout) bool {
		running, buffered := x.s.BegunBefore(r.ID, r.Least(p.Version))
		if running+buffered > 0 {
			outdated = append(outdated, r.ID)
		}
		closed += running
		return true
	})
	for _, id := range outdated {
		x.reviewLater(id)
	}
	return closed
}

// suspendPolicy holds the requests of a policy, or lets them go on. Said again, nothing changes.
func (x *execution) suspendPolicy(c *logv1.SuspendPolicy) *logv1.Result {
	p, r := x.ownPolicy(c.Policy, c.PolicyOwner)
	switch {
	case r != nil:
		return r
	case p.Suspended != c.Resume:
		return &logv1.Result{}
	}
	u := *p
	u.Suspended = !c.Resume
	x.s.PutPolicy(&u)
	x.routes.suspensions.add(u.Name)
	x.policiesChanged = true
	return &logv1.Result{Count: 1}
}

// deletePolicy forgets a policy that nothing names, with the batch of its last step and what was
// learned of its trajectories.
func (x *execution) deletePolicy(c *logv1.DeletePolicy) *logv1.Result {
	p, r := x.ownPolicy(c.Policy, c.PolicyOwner)
	if r != nil {
		return r
	}
	if why := x.policyUsers(p.Name); why != "" {
		return refuse(codeFailedPrecondition, "POLICY_IN_USE", "policy %q has %s; it can be deleted when there are none", p.Name, why)
	}
	if b := x.s.Batch(p.Name); b != nil {
		for _, id := range b.Samples {
			x.s.DeleteSample(id)
		}
		x.s.DeleteBatch(p.Name)
	}
	for _, class := range x.s.LengthClassesOf(p.Name) {
		x.s.DeleteLengthClass(p.Name, class)
	}
	x.forgetAffinities(p.Name)
	x.s.DeletePolicy(p.Name)
	x.routes.suspensions.add(p.Name)
	x.policiesChanged = true
	return &logv1.Result{Count: 1}
}

// policyUsers says what names a policy; empty: nothing does.
func (x *execution) policyUsers(name string) (what string) {
	x.s.WorkersOf(name, func(*state.Worker) bool { what = "workers: see rota worker list"; return false })
	x.s.WorkerPools(func(p *state.WorkerPool) bool {
		if p.Policy == name {
			what = "a worker pool: see rota worker pool list"
		}
		return what == ""
	})
	x.s.Rollouts(0, func(r *state.Rollout) bool { // those that have ended are as many as are kept: a thousand
		if r.Policy == name {
			what = "rollouts, or such that ended and are kept for the retention time: see rota rollout list"
		}
		return what == ""
	})
	if x.s.GeneratingOf(name) > 0 {
		what = "open trajectories: see rota trajectory list"
	}
	return what
}
