package chart

import (
	"fmt"

	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
)

// XY is a point of a line.
type XY = plotter.XY

// Line is a named line of a plot.
type Line struct {
	Name   string
	Points plotter.XYs
	// Steps: the value holds until the next point, as in a distribution.
	Steps bool
}

// Axes are those of a plot. LogX has decades on the x axis, where all is above 0.
type Axes struct {
	Title, X, Y string
	LogX        bool
}

// Lines draws lines into a file of a folder, and returns its path. The ending of the
// name is the format, such as .svg. The same lines give the same bytes.
func Lines(dir, name string, a Axes, lines []Line) (string, error) {
	p := newSheet(a.Title, a.X, a.Y)
	p.logX = a.LogX
	for i, l := range lines {
		if err := p.addLine(i, l); err != nil {
			return "", err
		}
	}
	p.Y.Min = min(p.Y.Min, 0)
	return p.save(dir, name)
}

func (s *sheet) addLine(i int, l Line) error {
	if len(l.Points) == 0 {
		return nil
	}
	line, dots, err := plotter.NewLinePoints(l.Points)
	if err != nil {
		return fmt.Errorf("draw %s: %w", l.Name, err)
	}
	line.Color, line.Width = colour(i), vg.Points(1.5)
	if i >= len(palette) {
		line.Dashes = []vg.Length{vg.Points(5), vg.Points(3)}
	}
	s.Add(line)
	s.legend.Add(l.Name, line)
	if l.Steps {
		line.StepStyle = plotter.PostStep
		return nil
	}
	dots.Color, dots.Radius = colour(i), vg.Points(1.5)
	s.Add(dots)
	return nil
}
