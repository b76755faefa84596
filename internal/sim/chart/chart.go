package chart

import (
	"fmt"
	"image/color"
	"math"
	"os"
	"path/filepath"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"

	"rota/internal/sim/evaluate"
)

// windows is how many points a line over time has.
const windows = 60

// legendShare is how much wider than the data a chart is, so that its legend
// hides nothing.
const legendShare = 0.4

const (
	width  = 18 * vg.Centimeter
	height = 10 * vg.Centimeter
)

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
	act := newPlot("Mean time to completion of actions ("+r.Workload+", simulated)", "time of submission (s)", "mean ACT (s)")
	used := newPlot("Utilisation ("+r.Workload+", simulated)", "time (s)", "busy units (%)")
	act.Y.Scale, act.Y.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
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
		if err := addLine(act, i, Line{Name: name, Points: acts}); err != nil {
			return nil, err
		}
		if err := addLine(used, i, Line{Name: name, Points: busy}); err != nil {
			return nil, err
		}
	}
	bars, err := breakdown(r)
	if err != nil {
		return nil, err
	}
	var files []string
	for _, x := range []struct {
		name string
		plot *plot.Plot
	}{{"act.png", act}, {"utilisation.png", used}, {"breakdown.png", bars}} {
		file, err := save(dir, x.name, x.plot)
		if err != nil {
			return nil, err
		}
		files = append(files, file)
	}
	return files, nil
}

// Sweep draws sweep.png, the mean ACT of each policy over the values, and returns its
// path.
func Sweep(dir, name string, points []evaluate.Point) (string, error) {
	p := newPlot("Mean time to completion of actions ("+points[0].Workload+", simulated)", name, "mean ACT (s)")
	p.Y.Scale, p.Y.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	for i, policy := range points[0].Order {
		var line plotter.XYs
		for j, at := range points {
			x, err := strconv.ParseFloat(at.Value, 64)
			if err != nil {
				x = float64(j)
			}
			if y := float64(at.Policies[policy].ACTMean) / 1e3; y > 0 {
				line = append(line, plotter.XY{X: x, Y: y})
			}
		}
		if err := addLine(p, i, Line{Name: policy, Points: line}); err != nil {
			return "", err
		}
	}
	return save(dir, "sweep.png", p)
}

// breakdown is a bar for each policy: what a trajectory's time is made of.
func breakdown(r *evaluate.Report) (*plot.Plot, error) {
	p := newPlot("Time of a trajectory ("+r.Workload+", simulated)", "", "mean (s)")
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
		p.Legend.Add(part.name, bars)
	}
	p.NominalX(r.Order...)
	return p, nil
}

func newPlot(title, x, y string) *plot.Plot {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = title, x, y
	p.Legend.Top = true
	p.Add(plotter.NewGrid())
	return p
}

// save writes a plot with room for its legend.
func save(dir, name string, p *plot.Plot) (file string, err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("folder of plots: %w", err)
	}
	if _, decades := p.X.Scale.(plot.LogScale); decades {
		p.X.Max *= math.Pow(p.X.Max/p.X.Min, legendShare)
	} else {
		p.X.Max += (p.X.Max - p.X.Min) * legendShare
	}
	file = filepath.Join(dir, name)
	if err := p.Save(width, height, file); err != nil {
		return "", fmt.Errorf("write %s: %w", file, err)
	}
	return file, nil
}
