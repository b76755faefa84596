package report

import (
	"cmp"
	"slices"
	"time"

	"rota/jepsen/check"
	"rota/jepsen/history"
)

// Versions say what was tested and where.
type Versions struct {
	Rota   string `json:"rota"`
	Old    string `json:"old,omitempty"` // the other build of a rolling restart
	Go     string `json:"go"`
	Kernel string `json:"kernel"`
}

// Report is the outcome of one run.
type Report struct {
	Scenario string    `json:"scenario"`
	About    string    `json:"about"`
	Seed     int64     `json:"seed"`
	Started  time.Time `json:"started"` // of the wall clock, for people only
	Versions Versions  `json:"versions"`
	Servers  int       `json:"servers"`
	Agents   int       `json:"agents"`
	Seconds  float64   `json:"seconds"`
	// Dir is where the record is stored.
	Dir string `json:"dir"`

	// Operations counts the calls that were answered with success, during
	// faults or not.
	Operations int `json:"operations"`
	NotOK      int `json:"not_ok"`
	// UnderFaults is the time from the first fault until the load ended.
	UnderFaults Window          `json:"under_faults"`
	Executions  int             `json:"executions"`
	Failovers   []float64       `json:"failovers_ms,omitempty"`
	FailoverP50 *float64        `json:"failover_p50_ms"` // nil: no leader was killed
	FailoverP99 *float64        `json:"failover_p99_ms"`
	Faults      []Around        `json:"faults"`
	Abuse       *Abuse          `json:"abuse,omitempty"`
	Healing     history.Healing `json:"healing"`
	Verdicts    []check.Verdict `json:"verdicts"`

	// Broken is why the run could not be carried out to its end.
	Broken string `json:"broken,omitempty"`
}

// New computes the report of a record.
func New(r *history.Record, verdicts []check.Verdict) *Report {
	faults := slices.Clone(r.Faults)
	slices.SortFunc(faults, func(a, b history.Fault) int { return cmp.Compare(a.Start, b.Start) })
	rep := &Report{
		Scenario: r.Scenario, Seed: r.Seed, Servers: len(r.Servers), Agents: len(r.Agents),
		Seconds: float64(r.Duration) / 1e9, Executions: len(r.Executions),
		Faults: around(r.Ops, faults, r.Duration), Abuse: abused(r), Healing: r.Healing, Verdicts: verdicts,
	}
	for _, op := range r.Ops {
		if op.Outcome == history.OK {
			rep.Operations++
		} else {
			rep.NotOK++
		}
	}
	if len(faults) > 0 {
		rep.UnderFaults = underFaults(r, faults[0].Start)
	}
	rep.addFailovers(failovers(r.Ops, faults))
	return rep
}

// underFaults looks at the time from the first fault until the load ended.
func underFaults(r *history.Record, first int64) Window {
	last := r.Healing.Stopped
	if last < first {
		last = r.Duration
	}
	return window(slices.SortedFunc(slices.Values(r.Ops), func(a, b history.Op) int { return cmp.Compare(a.End, b.End) }), first, last)
}

func (r *Report) addFailovers(took []int64) {
	if len(took) == 0 {
		return
	}
	for _, t := range took {
		r.Failovers = append(r.Failovers, millis(t))
	}
	p50, p99 := millis(history.Percentile(took, 50)), millis(history.Percentile(took, 99))
	r.FailoverP50, r.FailoverP99 = &p50, &p99
}

// Violations counts how often a promise was seen broken.
func (r *Report) Violations() (n int) {
	for _, v := range r.Verdicts {
		if !aboutTheRun(v) {
			n += v.Total
		}
	}
	return n
}

// aboutTheRun reports whether a verdict is about the run itself, and says
// nothing about rota.
func aboutTheRun(v check.Verdict) bool { return v.Checker == "faults" || v.Checker == "rate" }

// Void says why the run proves nothing, empty if it does: a fault that did not
// happen, too little load, a checker that had nothing to check, or a run that
// broke off.
func (r *Report) Void() (reasons []string) {
	if r.Broken != "" {
		reasons = append(reasons, r.Broken)
	}
	if len(r.Faults) == 0 {
		reasons = append(reasons, "there was no fault")
	}
	for _, v := range r.Verdicts {
		if aboutTheRun(v) {
			reasons = append(reasons, v.Violations...)
		}
		if v.Vacuous() {
			reasons = append(reasons, "the checker "+v.Checker+" had nothing to check")
		}
	}
	return reasons
}

// Summary is the line of JSON that a run ends with.
type Summary struct {
	Operations int `json:"operations"`
	Faults     int `json:"faults"`
	Violations int `json:"violations"`
	// Void counts runs that proved nothing.
	Void        int      `json:"void,omitempty"`
	FailoverP50 *float64 `json:"failover_p50_ms"`
	FailoverP99 *float64 `json:"failover_p99_ms"`
	// Checker is the first that found a violation, and Evidence what it was.
	Checker  string `json:"checker,omitempty"`
	Evidence string `json:"evidence,omitempty"`
	// Alarms are the first violations of all checkers that found any.
	Alarms map[string]string `json:"alarms,omitempty"`
}

func (s *Summary) alarm(checker, violation string) {
	if s.Alarms == nil {
		s.Checker, s.Evidence, s.Alarms = checker, violation, map[string]string{}
	}
	if s.Alarms[checker] == "" {
		s.Alarms[checker] = violation
	}
}

// Sum adds up several runs. Percentiles are of all failovers together.
func Sum(reports []*Report) Summary {
	var s Summary
	var all Report
	var took []int64
	for _, r := range reports {
		s.Operations += r.Operations
		s.Faults += len(r.Faults)
		s.Violations += r.Violations()
		if len(r.Void()) > 0 {
			s.Void++
		}
		for _, v := range r.Verdicts {
			if !aboutTheRun(v) && len(v.Violations) > 0 {
				s.alarm(v.Checker, v.Violations[0])
			}
		}
		for _, ms := range r.Failovers {
			took = append(took, int64(ms*1e6))
		}
	}
	all.addFailovers(took)
	s.FailoverP50, s.FailoverP99 = all.FailoverP50, all.FailoverP99
	return s
}
