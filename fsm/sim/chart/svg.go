package chart

import (
	"fmt"
	"html"
	"math"
	"os"
	"path/filepath"
	"strings"
)

// Line is a named line of a plot.
type Line struct {
	Name   string
	Points [][2]float64
	// Steps: the value holds until the next point, as in a distribution.
	Steps bool
}

// Axes are those of a plot. LogX has decades on the x axis.
type Axes struct {
	Title, X, Y string
	LogX        bool
}

// Sizes of a drawing, in pixels: all of it, and what is left around the data. The
// legend is on the right.
const (
	svgWidth, svgHeight = 720, 400
	svgLeft, svgRight   = 60, 190
	svgTop, svgBottom   = 36, 48
	svgTicks            = 6
)

// WriteSVG draws lines into a file of a folder, and returns its path.
func WriteSVG(dir, name string, a Axes, lines []Line) (string, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("folder of plots: %w", err)
	}
	file := filepath.Join(dir, name)
	if err := os.WriteFile(file, []byte(SVG(a, lines)), 0o644); err != nil {
		return "", fmt.Errorf("write %s: %w", file, err)
	}
	return file, nil
}

// SVG draws lines. The same lines give the same bytes.
func SVG(a Axes, lines []Line) string {
	p := newPaper(a, lines)
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">`+"\n", svgWidth, svgHeight)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="#fff"/>`+"\n", svgWidth, svgHeight)
	fmt.Fprintf(&b, `<text x="%d" y="20" font-size="14">%s</text>`+"\n", svgLeft, html.EscapeString(a.Title))
	p.axes(&b)
	for i, l := range lines {
		c := palette[i%len(palette)]
		colour, dashes := fmt.Sprintf("#%02x%02x%02x", c.R, c.G, c.B), ""
		if i >= len(palette) {
			dashes = ` stroke-dasharray="5 3"`
		}
		fmt.Fprintf(&b, `<polyline fill="none" stroke="%s" stroke-width="2"%s points="%s"/>`+"\n", colour, dashes, p.points(l))
		y := svgTop + 8 + 18*i
		fmt.Fprintf(&b, `<path d="M%d %dh18" stroke="%s" stroke-width="2"%s/><text x="%d" y="%d">%s</text>`+"\n",
			svgWidth-svgRight+10, y, colour, dashes, svgWidth-svgRight+34, y+4, html.EscapeString(l.Name))
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// paper turns values into pixels.
type paper struct {
	Axes
	xMin, xMax, yMin, yMax float64
}

func newPaper(a Axes, lines []Line) paper {
	p := paper{Axes: a, xMin: math.Inf(1), xMax: math.Inf(-1), yMin: 0, yMax: math.Inf(-1)}
	for _, l := range lines {
		for _, at := range l.Points {
			p.xMin, p.xMax = min(p.xMin, p.x(at[0])), max(p.xMax, p.x(at[0]))
			p.yMin, p.yMax = min(p.yMin, at[1]), max(p.yMax, at[1])
		}
	}
	if !(p.xMin < p.xMax) {
		p.xMin, p.xMax = p.xMin-1, p.xMin+1
	}
	if !(p.yMin < p.yMax) {
		p.yMax = p.yMin + 1
	}
	return p
}

func (p *paper) x(v float64) float64 {
	if p.LogX {
		return math.Log10(v)
	}
	return v
}

func (p *paper) at(x, y float64) (px, py float64) {
	return svgLeft + (p.x(x)-p.xMin)/(p.xMax-p.xMin)*(svgWidth-svgLeft-svgRight),
		svgHeight - svgBottom - (y-p.yMin)/(p.yMax-p.yMin)*(svgHeight-svgTop-svgBottom)
}

func (p *paper) points(l Line) string {
	var out []string
	last := 0.0
	for i, v := range l.Points {
		x, y := p.at(v[0], v[1])
		if l.Steps && i > 0 {
			out = append(out, fmt.Sprintf("%.1f,%.1f", x, last))
		}
		out = append(out, fmt.Sprintf("%.1f,%.1f", x, y))
		last = y
	}
	return strings.Join(out, " ")
}

// axes draws a grid with its numbers, and what they are of.
func (p *paper) axes(b *strings.Builder) {
	const grid = `<path d="M%.1f %.1f%s%.1f" stroke="#ddd"/><text x="%.1f" y="%.1f" text-anchor="%s">%s</text>` + "\n"
	for _, v := range ticks(p.yMin, p.yMax) {
		x, y := float64(svgLeft), 0.0
		_, y = p.at(p.back(p.xMin), v)
		fmt.Fprintf(b, grid, x, y, "h", float64(svgWidth-svgLeft-svgRight), x-6, y+4, "end", number(v))
	}
	values := ticks(p.xMin, p.xMax)
	if p.LogX {
		values = nil
		for d := math.Ceil(p.xMin); d <= p.xMax; d++ {
			values = append(values, math.Pow(10, d))
		}
	}
	for _, v := range values {
		x, y := p.at(v, p.yMin)
		fmt.Fprintf(b, grid, x, y, "v", float64(svgTop+svgBottom-svgHeight), x, y+16, "middle", number(v))
	}
	middle := float64(svgLeft+svgWidth-svgRight) / 2
	fmt.Fprintf(b, `<text x="%.1f" y="%d" text-anchor="middle">%s</text>`+"\n", middle, svgHeight-12, html.EscapeString(p.X))
	fmt.Fprintf(b, `<text transform="translate(14 %d) rotate(-90)" text-anchor="middle">%s</text>`+"\n", svgHeight/2, html.EscapeString(p.Y))
}

// back is what is drawn at a position of the x axis.
func (p *paper) back(at float64) float64 {
	if p.LogX {
		return math.Pow(10, at)
	}
	return at
}

// ticks are round numbers between two values.
func ticks(least, most float64) (out []float64) {
	step := math.Pow(10, math.Floor(math.Log10((most-least)/svgTicks)))
	for _, f := range []float64{1, 2, 5, 10} {
		if (most-least)/(step*f) <= svgTicks {
			step *= f
			break
		}
	}
	for i := math.Ceil(least / step); i*step <= most*(1+1e-9); i++ {
		out = append(out, i*step)
	}
	return out
}

func number(v float64) string { return fmt.Sprintf("%.4g", v) }
