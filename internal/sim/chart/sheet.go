package chart

import (
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	_ "gonum.org/v1/plot/vg/vgsvg" // so that a name may end in .svg
)

// Size of the data with its axes; the legend comes beside it.
const (
	width  = 18 * vg.Centimeter
	height = 10 * vg.Centimeter
	margin = 4 * vg.Millimeter
)

// spare is how much wider the room of the legend is than its names: who shows an SVG may have
// only a wider font.
const spare = 1.35

// dpi of images is twice that of a plain screen, so that letters are sharp on others too.
const dpi = 192

// sheet is a plot with its legend on the right, where it hides nothing.
type sheet struct {
	*plot.Plot
	legend plot.Legend
	// logX, logY: the axis is logarithmic if all is above 0, and there is anything.
	logX, logY bool
}

func newSheet(title, x, y string) *sheet {
	s := &sheet{Plot: plot.New(), legend: plot.NewLegend()}
	s.Title.Text, s.X.Label.Text, s.Y.Label.Text = title, x, y
	s.legend.Top, s.legend.Left, s.legend.Padding = true, true, vg.Millimeter
	s.Add(plotter.NewGrid())
	return s
}

// save writes the sheet to a file of a folder, which it makes, and returns its path. The
// ending of the name is the format.
func (s *sheet) save(dir, name string) (file string, err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("folder of plots: %w", err)
	}
	if s.logX {
		logarithmic(&s.X)
	}
	if s.logY {
		logarithmic(&s.Y)
	}
	file = filepath.Join(dir, name)
	legend := s.legend.Rectangle(draw.Canvas{}).Size().X * spare
	c, err := canvas(width+legend+2*margin, strings.TrimPrefix(filepath.Ext(name), "."))
	if err != nil {
		return "", fmt.Errorf("write %s: %w", file, err)
	}
	all := draw.New(c)
	s.drawData(draw.Crop(all, 0, -legend-2*margin, 0, 0))
	s.legend.Draw(draw.Crop(all, width+margin, -margin, 0, -s.Title.TextStyle.Font.Size-margin))
	out, err := os.Create(file)
	if err != nil {
		return "", fmt.Errorf("write %s: %w", file, err)
	}
	_, err = c.WriteTo(out)
	if e := out.Close(); err == nil {
		err = e
	}
	if err != nil {
		return "", fmt.Errorf("write %s: %w", file, err)
	}
	return file, nil
}

// drawData draws all but the legend. gonum takes the middle of a logarithmic axis for that of
// a linear one, and leaves much of the sheet empty so that a long label would fit there: such
// labels are drawn here.
func (s *sheet) drawData(c draw.Canvas) {
	x, y := s.X.Label, s.Y.Label
	inner := c
	if s.logX {
		s.X.Label.Text = ""
		inner = draw.Crop(inner, 0, 0, x.TextStyle.Height(x.Text)+x.Padding, 0)
	}
	if s.logY {
		s.Y.Label.Text = ""
		inner = draw.Crop(inner, y.TextStyle.Height(y.Text)+y.Padding, 0, 0, 0)
	}
	s.Draw(inner)
	data := s.DataCanvas(inner)
	if s.logX {
		c.FillText(x.TextStyle, vg.Point{X: data.Center().X, Y: c.Min.Y + x.TextStyle.FontExtents().Descent}, x.Text)
	}
	if s.logY {
		y.TextStyle.Rotation += math.Pi / 2
		c.FillText(y.TextStyle, vg.Point{X: c.Min.X + y.TextStyle.FontExtents().Ascent, Y: data.Center().Y}, y.Text)
	}
	s.X.Label, s.Y.Label = x, y
}

// canvas is an empty sheet of a format.
func canvas(wide vg.Length, format string) (interface {
	vg.CanvasSizer
	io.WriterTo
}, error) {
	if format == "png" {
		return vgimg.PngCanvas{Canvas: vgimg.NewWith(vgimg.UseWH(wide, height), vgimg.UseDPI(dpi))}, nil
	}
	return draw.NewFormattedCanvas(wide, height, format)
}
