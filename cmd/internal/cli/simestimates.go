package cli

import (
	"fmt"

	"rota/internal/sim/evaluate"
)

const estimatesTitle = ", estimates of starts"

var estimatesHeader = []string{"actions", "wait", "known %", "wait s", "median error %", "within p50 %", "within p90 %"}

// estimatesRows are how good the estimates of starts were under each policy that makes some:
// of the actions that had to wait. A value of a sweep comes first.
func estimatesRows(r *evaluate.Report, value string) (rows [][]string) {
	for _, name := range r.Order {
		var row []string
		if value != "" {
			row = append(row, value)
		}
		row = append(row, name)
		e := r.Policies[name].Estimates
		switch {
		case e == nil:
			row = append(row, "-", "-", "-", "-", "-", "-", "-")
		case e.Known == 0:
			row = append(row, fmt.Sprint(e.Actions), fmt.Sprint(e.Waited), percentOf(e.Known, e.Waited), "-", "-", "-", "-")
		default:
			row = append(row, fmt.Sprint(e.Actions), fmt.Sprint(e.Waited), percentOf(e.Known, e.Waited), fmt.Sprintf("%.2f", float64(e.WaitMean)/1e3),
				percentOf(e.Error, 1e6), percentOf(e.WithinP50, 1e6), percentOf(e.WithinP90, 1e6))
		}
		rows = append(rows, row)
	}
	return rows
}

// percentOf is how much some are of all.
func percentOf(some, all int64) string {
	if all == 0 {
		return "-"
	}
	return fmt.Sprintf("%.0f", 100*float64(some)/float64(all))
}
