package fsm

import (
	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
)

const tailBytesMax = 4 << 10

// reportAttempts settles attempts whose end a node reports. A report with an old
// token is a no-op: that attempt was given up, and what its node says of it no
// longer matters.
func (x *execution) reportAttempts(c *logv1.ReportAttempts) *logv1.Result {
	n := x.s.NodeByName(c.Node)
	if n == nil {
		return refuse(codeNotFound, "NODE_NOT_FOUND", "node %q is not registered; register it again", c.Node)
	}
	count := uint32(0)
	for _, r := range c.Reports {
		t := x.s.Attempt(n.ID, state.ActionID(r.ActionId))
		if t == nil || t.Number != r.Attempt || t.Incarnation != c.Incarnation {
			continue
		}
		x.settle(t, r)
		count++
	}
	return &logv1.Result{Count: count}
}

// settle ends an attempt as reported.
func (x *execution) settle(t *state.Attempt, r *logv1.AttemptReport) {
	x.release(t)
	a := x.s.Action(t.Action)
	res := result(r)
	x.learn(a, t, res)
	x.adapt(a, t, r, res)
	lost := res.Reason == state.EndNodeLost || res.Reason == state.EndSupervisorLost
	if !lost {
		a = x.used(a, r)
	}
	if a.GangEndedBy != 0 && res.Message == "" && (res.Reason != state.EndExited || res.ExitCode != 0) {
		res.Message = gangEndedText(a)
	}
	switch {
	case lost:
		x.lost(a, res)
	case res.Reason == state.EndExited && res.ExitCode == 0:
		x.end(a, state.ActionSucceeded, res)
	case a.CancelReason != 0 && res.Reason != state.EndExited:
		res.Reason = a.CancelReason
		x.end(a, state.ActionCanceled, res)
	case res.Reason == state.EndCanceled:
		x.end(a, state.ActionCanceled, res)
	default:
		x.end(a, state.ActionFailed, res)
	}
}

// result converts a report, cut to what may be kept. Unknown reasons, as a newer
// agent may send, count as a failed start.
func result(r *logv1.AttemptReport) *state.Result {
	reason := state.EndReason(r.Reason)
	if r.Reason < uint32(state.EndExited) || r.Reason > uint32(state.EndSupervisorLost) {
		reason = state.EndStartFailed
	}
	out, errs := tails(r.StdoutTail, r.StderrTail)
	return &state.Result{
		Reason: reason, ExitCode: r.ExitCode, Signal: r.Signal, Message: r.Message[:min(len(r.Message), tailBytesMax)],
		Stdout: out, Stderr: errs, ExecNS: r.ExecNs, CPUNS: r.CpuNs, MemoryPeak: r.MemoryPeakBytes,
	}
}

// tails cuts two outputs to their ends so that together they fit.
func tails(out, errs []byte) ([]byte, []byte) {
	if len(errs) > tailBytesMax/2 && len(out)+len(errs) > tailBytesMax {
		errs = errs[len(errs)-max(tailBytesMax/2, tailBytesMax-len(out)):]
	}
	if over := len(out) + len(errs) - tailBytesMax; over > 0 {
		out = out[over:]
	}
	return out, errs
}
