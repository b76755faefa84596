package chart

import (
	"cmp"
	"fmt"
	"image/color"
	"strconv"

	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"

	"rota/internal/sim/evaluate"
)

// windows is how many points a line over time has.
const windows = 60

// palette is that of Okabe and Ito, which people with any colour vision can tell
// apart.
var palette = []color.RGBA{
	{0, 114, 178, 255}, {213, 94, 0, 255}, {0, 158, 115, 255}, {204, 121, 167, 255},
	{230, 159, 0, 255}, {86, 180, 233, 255}, {0, 0, 0, 255},
}

func colour(i int) color.Color { return palette[i%len(palette)] }

// Compare draws act.png, utilisation.png and breakdown.png into a folder and
// returns their paths.
func Compare(dir string, r *evaluate.Report) ([]string, error) {
	end := int64(1)
	for _, name := range r.Order {
		end = max(end, int64(r.Policies[name].Makespan*1e6))
	}
	window := end/windows + 1
	act := newSheet("Mean time to completion of actions ("+r.Workload+", simulated)", "time of submission (s)", "mean ACT (s, logarithmic)")
	act.logY = true
	used := newSheet("Utilisation ("+r.Workload+", simulated)", "time (s)", "busy units (%)")
	used.Y.Min, used.Y.Max = 0, 100
	for i, name := range r.Order {
		s := r.Policies[name].Series(window)
		var acts, busy plotter.XYs
		for w := range s.ACT {
			x := float64(w) * float64(window) / 1e9
			if s.ACT[w] > 0 {
				acts = append(acts, plotter.XY{X: x, Y: float64(s.ACT[w]) / 1e9})
			}
			busy = append(busy, plotter.XY{X: x, Y: float64(s.Utilisation[w]) / 1e4})
		}
		if err := act.addLine(i, Line{Name: name, Points: acts}); err != nil {
			return nil, err
		}
		if err := used.addLine(i, Line{Name: name, Points: busy}); err != nil {
			return nil, err
		}
	}
	bars, err := breakdown(r)
	if err != nil {
		return nil, err
	}
	var files []string
	for _, x := range []struct {
		name  string
		sheet *sheet
	}{{"act.png", act}, {"utilisation.png", used}, {"breakdown.png", bars}} {
		file, err := x.sheet.save(dir, x.name)
		if err != nil {
			return nil, err
		}
		files = append(files, file)
	}
	return files, nil
}

// units say what a swept value counts.
var units = map[string]string{
	"batch": "batch (trajectories of each task)", "nodes": "nodes (machines)", "cores": "cores (of each node)", "gpus": "GPUs (of each node)",
}

// Sweep draws sweep.png, the mean ACT of each policy over the values, and returns its
// path.
func Sweep(dir, name string, points []evaluate.Point) (string, error) {
	p := newSheet("Mean time to completion of actions ("+points[0].Workload+", simulated)", cmp.Or(units[name], name), "mean ACT (s, logarithmic)")
	p.logY = true
	xs, names := places(points)
	for i, policy := range points[0].Order {
		var line plotter.XYs
		for j, at := range points {
			if y := float64(at.Policies[policy].ACTMean) / 1e3; y > 0 {
				line = append(line, plotter.XY{X: xs[j], Y: y})
			}
		}
		if err := p.addLine(i, Line{Name: policy, Points: line}); err != nil {
			return "", err
		}
	}
	if len(names) > 0 {
		p.NominalX(names...)
	}
	return p.save(dir, "sweep.png")
}

// places are where the values of a sweep are on the x axis. Values that are not all numbers
// are side by side, and have names.
func places(points []evaluate.Point) (xs []float64, names []string) {
	for _, at := range points {
		x, err := strconv.ParseFloat(at.Value, 64)
		if err != nil {
			xs = nil
			for i, at := range points {
				xs, names = append(xs, float64(i)), append(names, at.Value)
			}
			return xs, names
		}
		xs = append(xs, x)
	}
	return xs, nil
}

// breakdown is a bar for each policy: what a trajectory's time is made of.
func breakdown(r *evaluate.Report) (*sheet, error) {
	p := newSheet("Time of a trajectory ("+r.Workload+", simulated)", "", "mean (s)")
	parts := []struct {
		name string
		of   func(*evaluate.Result) evaluate.MS
	}{
		{"thinking", func(x *evaluate.Result) evaluate.MS { return x.ThinkMean }},
		{"tools", func(x *evaluate.Result) evaluate.MS { return x.ToolMean }},
		{"reward", func(x *evaluate.Result) evaluate.MS { return x.RewardMean }},
	}
	var below *plotter.BarChart
	for i, part := range parts {
		values := make(plotter.Values, len(r.Order))
		for j, name := range r.Order {
			values[j] = float64(part.of(r.Policies[name])) / 1e3
		}
		bars, err := plotter.NewBarChart(values, 1.5*vg.Centimeter)
		if err != nil {
			return nil, fmt.Errorf("draw bars: %w", err)
		}
		bars.Color, bars.LineStyle.Width = colour(i), 0
		if below != nil {
			bars.StackOn(below)
		}
		below = bars
		p.Add(bars)
		p.legend.Add(part.name, bars)
	}
	p.NominalX(r.Order...)
	return p, nil
}
