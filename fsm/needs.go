package fsm

import (
	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
)

// allowedMax bounds how many numbers of cores an action may name.
const allowedMax = 64

// mayBeCoreless reports whether an action may do without cores of its own.
func mayBeCoreless(n *logv1.Needs) bool { return n != nil && (n.Gpus != nil || len(n.Quotas) > 0) }

// needs fills in the parts of an action's cost that most do not have, or says
// why it cannot be accepted.
func (x *execution) needs(row *state.Action, a *logv1.Action) *logv1.Result {
	if len(a.Class) > nameBytesMax {
		return refuse(codeInvalidArgument, "INVALID", "class must have at most %d bytes, has %d", nameBytesMax, len(a.Class))
	}
	if a.SizeHint > 0 && a.Class == "" {
		return refuse(codeInvalidArgument, "INVALID", "a size hint says how large an action is among those of its class; name the class too")
	}
	c := a.Needs
	if c == nil {
		return nil
	}
	if a.CoresMin == 0 && a.CoresMax > 0 {
		return refuse(codeInvalidArgument, "INVALID", "an action without cores of its own has no max_cores either; leave it out")
	}
	if a.CoresMin == 0 && c.Gpus == nil && c.BandwidthBps != 0 {
		return refuse(codeInvalidArgument, "INVALID", "an action without cores and GPUs reserves no bandwidth; leave bandwidth_bps out")
	}
	p, r := profile(c.Profile)
	if r != nil {
		return r
	}
	row.Needs = &state.Needs{Cores: c.Cores, Profile: p, Bandwidth: c.BandwidthBps}
	if c.Gpus != nil {
		if row.Needs.GPUs, r = gpuDemand(a); r != nil {
			return r
		}
	}
	if r := x.quotas(row, c.Quotas); r != nil {
		return r
	}
	return allowedCores(a)
}

// allowedCores checks a set of numbers of cores.
func allowedCores(a *logv1.Action) *logv1.Result {
	set := a.Needs.Cores
	if len(set) == 0 {
		return nil
	}
	if len(set) > allowedMax || set[0] == 0 || set[0] != a.CoresMin || set[len(set)-1] != a.CoresMax {
		return refuse(codeInvalidArgument, "INVALID", "allowed_cores must be 1 to %d numbers, the first of them cores_min and the last cores_max", allowedMax)
	}
	for i := 1; i < len(set); i++ {
		if set[i] <= set[i-1] {
			return refuse(codeInvalidArgument, "INVALID", "allowed_cores must ascend: %d comes after %d", set[i], set[i-1])
		}
	}
	return nil
}
