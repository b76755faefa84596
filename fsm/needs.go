package fsm

import (
	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
)

// pointsMax bounds how many points a speed-up table may have.
const pointsMax = 64

// mayBeCoreless reports whether an action may do without cores of its own.
func mayBeCoreless(n *logv1.Needs) bool { return n != nil && (n.Gpus != nil || len(n.Quotas) > 0) }

// needs fills in the parts of an action's cost that most do not have, or says
// why it cannot be accepted.
func (x *execution) needs(row *state.Action, a *logv1.Action) *logv1.Result {
	if a.Class != "" {
		return unsupported("class")
	}
	c := a.Needs
	if c == nil {
		return nil
	}
	if len(c.Cores) > 0 { // the scheduler would grant numbers between them
		return unsupported("allowed_cores")
	}
	if a.CoresMin == 0 && a.CoresMax > 0 {
		return refuse(codeInvalidArgument, "INVALID", "an action without cores of its own has no max_cores either; leave it out")
	}
	if a.CoresMin == 0 && c.Gpus == nil && c.BandwidthBps != 0 {
		return refuse(codeInvalidArgument, "INVALID", "an action without cores and GPUs reserves no bandwidth; leave bandwidth_bps out")
	}
	profile, r := profileOf(c.Profile)
	if r != nil {
		return r
	}
	row.Needs = &state.Needs{Profile: profile, Bandwidth: c.BandwidthBps}
	if c.Gpus != nil {
		if row.Needs.GPUs, r = gpuDemand(a); r != nil {
			return r
		}
	}
	return x.quotas(row, c.Quotas)
}

func unsupported(field string) *logv1.Result {
	return refuse(codeUnimplemented, "NOT_SUPPORTED", "%s is not supported by this release; leave it out", field)
}
