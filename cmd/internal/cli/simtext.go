package cli

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"rota/internal/sim/evaluate"
)

var simHeader = []string{"policy", "ACT ms", "of rota", "p50 ms", "p90 ms", "p99 ms", "queue ms", "exec ms", "overhead ms", "busy %", "step s", "failed", "retries", "resizes"}

// simTitle says what was simulated, but for what a sweep changes.
func simTitle(r *evaluate.Report, sweep string) string {
	p := &r.Parameters
	parts := []string{"simulated: " + r.Workload}
	if sweep != "batch" {
		parts = append(parts, "batch "+simBatch(p.Batch))
	}
	if p.CPUNodes > 0 && sweep != "nodes" && sweep != "cores" {
		parts = append(parts, fmt.Sprintf("%d x %d cores", p.CPUNodes, p.CoresPerNode))
	}
	if p.GPUNodes > 0 && sweep != "nodes" && sweep != "gpus" {
		parts = append(parts, fmt.Sprintf("%d x %d GPUs", p.GPUNodes, p.GPUsPerNode))
	}
	shown := []string{"batch", "nodes", "cores", "gpus", "seed", sweep}
	for _, name := range slices.Sorted(maps.Keys(p.Set)) {
		if !slices.Contains(shown, name) {
			parts = append(parts, name+" "+p.Set[name])
		}
	}
	if p.CPUNodes > 0 { // GPUs are not resized, and hold no sandboxes
		parts = append(parts, fmt.Sprintf("a resize costs %g ms", float64(p.Resize)), fmt.Sprintf("a sandbox opens in %g ms", float64(p.Open)))
	}
	if p.Trace != nil {
		parts = append(parts, fmt.Sprintf("tools from a trace of %d sessions at %g %% of gaps", p.Trace.Sessions, float64(p.Trace.SharePPM)/1e4))
	}
	if sweep != "seed" {
		parts = append(parts, fmt.Sprintf("seed %d", p.Seed))
	}
	return strings.Join(parts, ", ")
}

// simBatch is the batch of each task, once if it is the same for all.
func simBatch(batch []int64) string {
	if len(slices.Compact(slices.Clone(batch))) == 1 {
		return fmt.Sprint(batch[0])
	}
	return strings.Trim(fmt.Sprint(batch), "[]")
}

func simRows(f *simFlags, r *evaluate.Report) (rows [][]string) {
	base := f.of(r.Policies[r.Order[0]])
	for _, name := range r.Order {
		p := r.Policies[name]
		of := f.of(p)
		rows = append(rows, []string{name, simMS(of.ACTMean), simFactor(of.ACTMean, base.ACTMean), simMS(of.ACTP50), simMS(of.ACTP90), simMS(of.ACTP99),
			simMS(of.QueueMean), simMS(of.ExecMean), simMS(of.OverheadMean), fmt.Sprintf("%.1f", float64(p.Busy)/1e4),
			fmt.Sprintf("%.1f", float64(p.StepMean)/1e3), fmt.Sprint(of.Failed), fmt.Sprint(of.Retries),
			fmt.Sprintf("%.2f", float64(of.Resizes)/float64(max(1, of.Actions)))})
	}
	return rows
}

// of returns the statistics of the actions that count.
func (f *simFlags) of(r *evaluate.Result) evaluate.Stats {
	if f.kind == "" {
		return r.Stats
	}
	return r.Kinds[f.kind]
}

// counted says in a title which actions count.
func (f *simFlags) counted() string {
	if f.kind == "" {
		return ""
	}
	return ", " + f.kind + "s only"
}

var breakdownHeader = []string{"policy", "thinks s", "tools s", "of rota", "rewards s", "of rota", "both s", "of rota"}

// breakdownRows are what a trajectory spends its time on, on average: its model's
// thinking, its tools and its rewards (ARL-Tangram, Figure 7).
func breakdownRows(r *evaluate.Report) (rows [][]string) {
	seconds := func(v evaluate.MS) string { return fmt.Sprintf("%.2f", float64(v)/1e3) }
	base := r.Policies[r.Order[0]]
	for _, name := range r.Order {
		p := r.Policies[name]
		rows = append(rows, []string{name, seconds(p.ThinkMean), seconds(p.ToolMean), simFactor(p.ToolMean, base.ToolMean),
			seconds(p.RewardMean), simFactor(p.RewardMean, base.RewardMean),
			seconds(p.ToolMean + p.RewardMean), simFactor(p.ToolMean+p.RewardMean, base.ToolMean+base.RewardMean)})
	}
	return rows
}

// simFactor is how much longer something takes than under the first policy.
func simFactor(v, base evaluate.MS) string {
	if base == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f", float64(v)/float64(base))
}

func simMS(v evaluate.MS) string {
	if v >= 100 {
		return fmt.Sprintf("%.0f", float64(v))
	}
	return fmt.Sprintf("%.1f", float64(v))
}

// sweepTable has a line for each value: the mean ACT of each policy, and of all
// but the first how much longer that is.
func sweepTable(f *simFlags, name string, points []evaluate.Point) (header []string, rows [][]string) {
	order := points[0].Order
	header = []string{name}
	for i, policy := range order {
		header = append(header, policy+" ms")
		if i > 0 {
			header = append(header, policy+"/"+order[0])
		}
	}
	header = append(header, order[0]+" queue ms", order[0]+" busy %")
	for _, at := range points {
		base := at.Policies[order[0]]
		row := []string{at.Value}
		for i, policy := range order {
			mean := f.of(at.Policies[policy]).ACTMean
			row = append(row, simMS(mean))
			if i > 0 {
				row = append(row, simFactor(mean, f.of(base).ACTMean))
			}
		}
		rows = append(rows, append(row, simMS(f.of(base).QueueMean), fmt.Sprintf("%.1f", float64(base.Busy)/1e4)))
	}
	return header, rows
}

// sweepJSON is a comparison for each value.
func sweepJSON(name string, points []evaluate.Point) any {
	type point struct {
		Value string `json:"value"`
		*evaluate.Report
	}
	out := struct {
		Simulated bool    `json:"simulated"`
		Sweep     string  `json:"sweep"`
		Points    []point `json:"points"`
	}{true, name, nil}
	for _, p := range points {
		out.Points = append(out.Points, point{p.Value, p.Report})
	}
	return out
}

// printSim writes a table with its title.
func (a *app) printSim(f *simFlags, title string, header []string, rows [][]string) error {
	if !f.markdown {
		fmt.Fprintln(a.out, title)
		writeTable(a.out, header, rows)
		return nil
	}
	fmt.Fprintf(a.out, "%s:\n\n", strings.ToUpper(title[:1])+title[1:])
	rule := make([]string, len(header))
	for i := range rule {
		rule[i] = "---"
	}
	for _, row := range append([][]string{header, rule}, rows...) {
		fmt.Fprintf(a.out, "| %s |\n", strings.Join(row, " | "))
	}
	return nil
}

// simBar shows the progress of a simulation, and only on a terminal: programs want nothing
// but the result.
type simBar struct {
	w    io.Writer
	mu   sync.Mutex
	last time.Time
	done bool
	what string // is counted
}

const (
	simBarWidth    = 40
	simBarInterval = 100 * time.Millisecond
)

func newSimBar(w io.Writer) *simBar {
	return &simBar{w: w, done: !isTerminal(w), what: "trajectories"}
}

// progress returns the function that draws the bar, or nil without a bar.
func (b *simBar) progress() evaluate.Progress {
	if b.done {
		return nil
	}
	return func(over, all int64) {
		b.mu.Lock()
		defer b.mu.Unlock()
		if now := time.Now(); !b.done && now.Sub(b.last) > simBarInterval {
			b.last = now
			full := int(over * simBarWidth / max(1, all))
			fmt.Fprintf(b.w, "\r[%s%s] %d of %d %s", strings.Repeat("=", full), strings.Repeat(" ", simBarWidth-full), over, all, b.what)
		}
	}
}

// end removes the bar.
func (b *simBar) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.done {
		b.done = true
		fmt.Fprint(b.w, "\r\033[K")
	}
}
