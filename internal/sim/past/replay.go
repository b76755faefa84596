package past

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"rota/internal/sim/evaluate"
	"rota/internal/sim/workload"
)

// Report is what a replay found.
type Report struct {
	// Simulated is always true: only Happened was measured.
	Simulated bool `json:"simulated"`
	Data      Data `json:"data"`
	// Happened is how the actions went, Present what rota makes of them in a simulation
	// of the cluster as it was.
	Happened *evaluate.Result `json:"happened"`
	Present  *evaluate.Result `json:"present"`
	// Error is how far Present is from Happened.
	Error Error `json:"error"`
	// WhatIf has a result for each policy, if anything was to be different.
	WhatIf []WhatIf `json:"what_if"`
}

// WhatIf is a policy on nodes that may be others than the cluster's.
type WhatIf struct {
	Policy string           `json:"policy"`
	Nodes  string           `json:"nodes"`
	Result *evaluate.Result `json:"result"`
}

// Error is of simulated times against measured ones, in parts per million of the latter.
type Error struct {
	ACTMean int64 `json:"act_mean_ppm"`
	ACTP50  int64 `json:"act_p50_ppm"`
	ACTP99  int64 `json:"act_p99_ppm"`
}

// Data says what was read and what is replayed of it.
type Data struct {
	From         time.Time      `json:"from"`
	To           time.Time      `json:"to"`
	Whole        bool           `json:"from_the_beginning"`
	Pool         string         `json:"pool"`
	Nodes        string         `json:"nodes"`
	Actions      int            `json:"actions"`
	Trajectories int            `json:"trajectories"`
	Dispatch     evaluate.MS    `json:"dispatch_ms"`
	LeftOut      map[string]int `json:"left_out"`
	Notes        []string       `json:"notes"`
}

// CheckPolicy says what is wrong with the name of a policy for a replay.
func CheckPolicy(name string) error {
	if name == "rota" || name == "pod" || name == "equal" || strings.HasPrefix(name, "fixed-") {
		return nil
	}
	return fmt.Errorf("%w: there is no policy %q for a replay, only rota, fixed-N, pod and equal", workload.ErrParams, name)
}

// Replay simulates the cluster as it was, and then policies with what is to be
// different; without any policy, only the former.
func (p *Past) Replay(ctx context.Context, o Options, policies []string, workers int) (*Report, error) {
	for _, policy := range policies {
		if err := CheckPolicy(policy); err != nil {
			return nil, err
		}
	}
	was, present, err := p.build(&Options{Pool: o.Pool})
	if err != nil {
		return nil, err
	}
	_, changed, err := p.build(&o)
	if err != nil {
		return nil, err
	}
	inputs, all := []*evaluate.Input{present}, append([]string{"rota"}, policies...)
	for range policies {
		inputs = append(inputs, changed)
	}
	results, err := evaluate.RunAll(ctx, inputs, all, workers)
	if err != nil {
		return nil, err
	}
	r := &Report{
		Simulated: true, Data: was.data(present), Present: results[0],
		Happened: evaluate.Observe(was.observed, present.Params().Cluster.Cores()),
	}
	r.Error = Error{off(r.Present.ACTMean, r.Happened.ACTMean), off(r.Present.ACTP50, r.Happened.ACTP50), off(r.Present.ACTP99, r.Happened.ACTP99)}
	for i, policy := range policies {
		r.WhatIf = append(r.WhatIf, WhatIf{policy, nodesText(changed), results[i+1]})
	}
	return r, nil
}

// off is by how much a simulated time differs from a measured one.
func off(simulated, measured evaluate.MS) int64 {
	if measured == 0 {
		return 0
	}
	return int64((simulated/measured - 1) * million)
}

// nodesText is the nodes of an input in words, such as "2 x 8 cores".
func nodesText(in *evaluate.Input) string {
	var parts []string
	count := make(map[int64]int)
	for _, n := range in.Params().Cluster.Nodes() {
		count[n.Cores()]++
	}
	for _, cores := range slices.Sorted(maps.Keys(count)) {
		parts = append(parts, fmt.Sprintf("%d x %d cores", count[cores], cores))
	}
	return strings.Join(parts, " + ")
}

// data says what was replayed, what not, and what had to be assumed.
func (b *builder) data(in *evaluate.Input) Data {
	from, to := b.past.span()
	d := Data{
		From: time.Unix(0, from).UTC(), To: time.Unix(0, to).UTC(), Whole: b.past.Whole, Pool: b.pool.Name, Nodes: nodesText(in),
		Actions: len(b.actions), Trajectories: b.trajectories, Dispatch: evaluate.MS(b.overheads[len(b.overheads)/2]/1000) / 1000,
		LeftOut: maps.Clone(b.omitted),
	}
	if b.notEnded > 0 {
		d.LeftOut["queued or running at the end"] = b.notEnded
	}
	note := func(n int, format string, args ...any) {
		if n > 0 {
			d.Notes = append(d.Notes, fmt.Sprintf(format, append([]any{n}, args...)...))
		}
	}
	note(b.curves.client, "%d elastic actions speed up as their clients said")
	note(b.curves.learned, "%d elastic actions speed up as their classes have learned (%s)", b.learnedText())
	note(b.curves.assumed, "%d elastic actions are assumed to be 5 %% serial, because neither their clients nor their classes know")
	note(b.unmeasured, "%d elastic actions ended before the log begins: their CPU time says how many cores they had")
	note(b.beside, "%d actions ran beside another of their trajectory: each is replayed at its own time, on any node")
	note(b.again, "%d actions needed several attempts, of which only the last is replayed")
	note(b.begunBefore, "%d trajectories had begun before the log and the snapshot do, and are replayed from what is known of them")
	return d
}

// learnedText has the classes with the serial fraction of each.
func (b *builder) learnedText() string {
	var parts []string
	for _, id := range slices.Sorted(maps.Keys(b.learned)) {
		parts = append(parts, fmt.Sprintf("%s: %g %% serial", b.past.last.Class(id).Name, float64(b.learned[id])/1e4))
	}
	return strings.Join(parts, ", ")
}
