package chart

import (
	"fmt"
	"math"
	"strconv"

	"gonum.org/v1/plot"
)

// logarithmic gives an axis decades, once all that is drawn has been added. An axis with
// nothing, or with what is not above 0, stays as it is.
func logarithmic(a *plot.Axis) {
	if a.Min <= 0 || math.IsInf(a.Min, 0) || math.IsInf(a.Max, 0) {
		return
	}
	if a.Min == a.Max {
		a.Min, a.Max = a.Min/2, a.Max*2
	}
	a.Scale, a.Tick.Marker = plot.LogScale{}, decades{}
}

// labelsDecadesMax is for how many decades there is room for the labels 1, 2 and 5 of each.
const labelsDecadesMax = 3

// decades puts ticks at 1 to 9 times the powers of ten. Those at 1, 2 and 5 have labels, or
// over many decades those at 1; a part of a decade without two of them is divided evenly.
type decades struct{}

// Ticks implements plot.Ticker; least is above 0.
func (decades) Ticks(least, most float64) (ticks []plot.Tick) {
	many := math.Log10(most/least) > labelsDecadesMax
	labels := 0
	for e := int(math.Floor(math.Log10(least))); ; e++ {
		for m := 1; m <= 9; m++ {
			// Of the text, so that it is the nearest number to what the label says.
			v, err := strconv.ParseFloat(fmt.Sprintf("%de%d", m, e), 64)
			switch {
			case err != nil || v > most:
				if labels < 2 {
					return plot.DefaultTicks{}.Ticks(least, most)
				}
				return ticks
			case v < least:
				continue
			}
			t := plot.Tick{Value: v}
			if m == 1 || !many && (m == 2 || m == 5) {
				t.Label = strconv.FormatFloat(v, 'g', -1, 64)
				labels++
			}
			ticks = append(ticks, t)
		}
	}
}
