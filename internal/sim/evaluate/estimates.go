package evaluate

import (
	"slices"

	"rota/fsm/state"
	"rota/sched"
)

// forecast is asked of the state machine when a submission is answered: when the action starts.
type forecast struct {
	asked    bool
	at       int64 // log time
	estimate sched.StartEstimate
	// waited is what became of it: from the answer to the grant.
	waited int64
}

// forecast asks when an action starts that was just submitted.
func (m *machine) forecast(c *call, id state.ActionID) {
	if !m.w.in.Estimates || c.try > 0 {
		return
	}
	now := epoch + m.w.loop.Now()
	m.fsm.View(func(s *state.State) {
		c.forecast = forecast{asked: true, at: now, estimate: sched.EstimateStarts(s, []*state.Action{s.Action(id)}, now)[0]}
	})
}

// Estimates say how good estimates of starts were, of the first try of each action.
type Estimates struct {
	Actions int64 `json:"actions"`
	// Waited are those that had not started when their submission was answered, Known those
	// of them with an estimate. The rest is about the known ones.
	Waited   int64 `json:"waited"`
	Known    int64 `json:"known"`
	WaitMean MS    `json:"wait_mean_ms"`
	// Error is the median of the differences between p50 and the wait, over the wait.
	Error     int64 `json:"median_error_ppm"`
	WithinP50 int64 `json:"within_p50_ppm"`
	WithinP90 int64 `json:"within_p90_ppm"`
}

// forecasts is what is recorded of estimates.
type forecasts []forecast

func (f *forecasts) add(c *call) {
	if c.forecast.asked {
		*f = append(*f, c.forecast)
	}
}

// result is nil if nothing was asked.
func (f forecasts) result() *Estimates {
	if len(f) == 0 {
		return nil
	}
	e := &Estimates{Actions: int64(len(f))}
	var errors []int64
	total, p50, p90 := int64(0), int64(0), int64(0)
	for i := range f {
		a := &f[i]
		if a.waited <= 0 {
			continue
		}
		e.Waited++
		if a.estimate.Unknown != "" {
			continue
		}
		e.Known++
		total += a.waited
		off := a.estimate.P50NS - a.waited
		errors = append(errors, int64(state.MulDiv(uint64(max(off, -off)), million, uint64(a.waited))))
		if a.waited <= a.estimate.P50NS {
			p50++
		}
		if a.waited <= a.estimate.P90NS {
			p90++
		}
	}
	if e.Known == 0 {
		return e
	}
	slices.Sort(errors)
	e.WaitMean, e.Error = ms(total/e.Known), errors[len(errors)/2]
	e.WithinP50, e.WithinP90 = p50*million/e.Known, p90*million/e.Known
	return e
}
