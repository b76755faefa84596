package cli

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"rota/api/client"
	rotav1 "rota/api/gen/rota/v1"
)

func (a *app) namespaceUsageCmd() *cobra.Command {
	var asCSV bool
	cmd := &cobra.Command{
		Use: "usage", Short: "Show what namespaces have used", Args: exactly(),
		Long: `Shows what the actions of each namespace have used since it was created: cores and GPUs by
the hour, as long as attempts held them, the CPU time that their processes took, and memory by
the hour, that of trajectories until now. Attempts that run now are not counted yet. To charge for a month, subtract what was
shown at its beginning. Needs feature level 3.`,
		Example: "  rota operator namespace usage\n  rota operator namespace usage --csv > usage.csv",
		RunE: a.with(func(ctx context.Context, c *client.Client, _ []string) error {
			resp, err := call(ctx, a, c.Operator.ListNamespaces, &rotav1.ListNamespacesRequest{})
			if err != nil {
				return err
			}
			header := []string{"namespace", "core hours", "gpu hours", "cpu hours", "gib hours", "attempts", "ended", "succeeded"}
			rows := make([][]string, 0, len(resp.Namespaces))
			for _, n := range resp.Namespaces {
				u := n.GetUsage()
				rows = append(rows, []string{n.Name, hours(u.GetCoreSeconds()), hours(u.GetGpuSeconds()), hours(u.GetCpuSeconds()),
					hours(u.GetMemoryByteSeconds() / (1 << 30)), fmt.Sprint(u.GetAttempts()), fmt.Sprint(u.GetEndedActions()), fmt.Sprint(u.GetSucceededActions())})
			}
			if asCSV {
				return a.printCSV(header, rows)
			}
			return a.print(resp, header, rows)
		}),
	}
	a.csvFlag(cmd, &asCSV, "write comma-separated values")
	return cmd
}

// hours writes seconds as hours, to the millionth.
func hours(seconds float64) string {
	text := strconv.FormatFloat(seconds/3600, 'f', 6, 64)
	return strings.TrimSuffix(strings.TrimRight(text, "0"), ".")
}
