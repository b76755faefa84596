package cli

import (
	"fmt"
	"io"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	rotav1 "rota/api/gen/rota/v1"
)

const (
	// barMax is how many characters the longest bar has.
	barMax = 40
	// barsMax is how many bars a drawing has at most: adjacent ones are put together.
	barsMax = 20
)

// workText is "half take up to 8.1s, 90 % up to 21s, 99 % up to 40s with one core".
func workText(c *rotav1.Class) string {
	if c.GetWorkP50() == nil {
		return ""
	}
	text := "half take up to " + shortDuration(c.WorkP50)
	if c.WorkP90 != nil {
		text += ", 90 % up to " + shortDuration(c.WorkP90)
	}
	if c.WorkP99 != nil {
		text += ", 99 % up to " + shortDuration(c.WorkP99)
	}
	return text + ", with one core or GPU"
}

// shortDuration has three digits.
func shortDuration(d *durationpb.Duration) string {
	v, unit := d.AsDuration(), time.Nanosecond
	for unit*1000 <= v {
		unit *= 10
	}
	return v.Round(unit).String()
}

// drawClass draws how long attempts took with each number of units, and how many had how
// much work.
func drawClass(w io.Writer, c *rotav1.Class) {
	if len(c.GetWidths()) > 0 {
		drawWidths(w, c.Widths)
	}
	if len(c.GetLifetimes()) > 0 {
		drawLifetimes(w, c.Lifetimes)
	}
	if len(c.GetSizes()) > 0 {
		drawSizes(w, c.Sizes)
	}
}

// drawWidths draws durations: what more cores bring is seen at a glance.
func drawWidths(w io.Writer, widths []*rotav1.ClassWidth) {
	rows := make([]meanRow, 0, len(widths))
	for _, x := range widths {
		rows = append(rows, meanRow{fmt.Sprint(x.Units), x.Attempts, x.MeanDuration})
	}
	drawMeans(w, "cores or gpus", "mean", rows)
}

// drawSizes draws how much work there is by size.
func drawSizes(w io.Writer, sizes []*rotav1.ClassSize) {
	rows := make([]meanRow, 0, len(sizes))
	for _, z := range sizes {
		hints := "all"
		if z.Most > 0 {
			hints = fmt.Sprintf("%d to %d", z.Least, z.Most)
		}
		rows = append(rows, meanRow{hints, z.Attempts, z.MeanWork})
	}
	drawMeans(w, "size hint", "mean with one", rows)
}

// meanRow is the mean of some attempts.
type meanRow struct {
	of       string
	attempts uint64
	mean     *durationpb.Duration
}

// drawMeans draws means as bars.
func drawMeans(w io.Writer, of, mean string, means []meanRow) {
	longest := 0.0
	for _, m := range means {
		longest = max(longest, m.mean.AsDuration().Seconds())
	}
	rows := make([][]string, 0, len(means))
	for _, m := range means {
		rows = append(rows, []string{m.of, fmt.Sprint(m.attempts), shortDuration(m.mean), bar(m.mean.AsDuration().Seconds(), longest)})
	}
	fmt.Fprintln(w)
	writeTable(w, []string{of, "attempts", mean, ""}, rows)
}

// drawLifetimes draws the histogram. Old attempts count for less, so counts are not whole.
func drawLifetimes(w io.Writer, all []*rotav1.ClassLifetime) {
	merged := mergeLifetimes(all)
	most := 0.0
	for _, l := range merged {
		most = max(most, l.Ended+l.Cut)
	}
	rows := make([][]string, 0, len(merged))
	for _, l := range merged {
		ended := bar(l.Ended, most)
		rows = append(rows, []string{
			shortDuration(l.Least) + " to " + shortDuration(l.Below), fmt.Sprintf("%.0f", l.Ended), fmt.Sprintf("%.0f", l.Cut),
			ended + strings.Repeat("░", len([]rune(bar(l.Ended+l.Cut, most)))-len([]rune(ended))),
		})
	}
	fmt.Fprintln(w)
	writeTable(w, []string{"work with one", "ended", "cut off", ""}, rows)
}

// mergeLifetimes puts adjacent buckets together until there are few enough. A gap is a
// bucket as well, so that the axis is even.
func mergeLifetimes(all []*rotav1.ClassLifetime) []*rotav1.ClassLifetime {
	first, last := all[0].Least.AsDuration(), all[len(all)-1].Below.AsDuration()
	for parts := 4; ; parts /= 2 { // of an octave
		out, i := []*rotav1.ClassLifetime(nil), 0
		for least := first; least < last; {
			below := nextLeast(least, parts)
			b := &rotav1.ClassLifetime{Least: durationpb.New(least), Below: durationpb.New(below)}
			for ; i < len(all) && all[i].Least.AsDuration() < below; i++ {
				b.Ended, b.Cut = b.Ended+all[i].Ended, b.Cut+all[i].Cut
			}
			out, least = append(out, b), below
		}
		if len(out) <= barsMax || parts == 1 {
			return out
		}
	}
}

// nextLeast returns where the bucket ends that begins at a duration, with so many to an
// octave.
func nextLeast(least time.Duration, parts int) time.Duration {
	octave := time.Duration(1)
	for 2*octave <= least {
		octave *= 2
	}
	step := max(1, octave/time.Duration(parts))
	return (least/step + 1) * step
}

// bar is as long as a value is large; what is not nothing is seen.
func bar(v, most float64) string {
	if v <= 0 || most <= 0 {
		return ""
	}
	return strings.Repeat("█", max(1, int(v/most*barMax+0.5)))
}
