package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"rota/cmd/internal/bench"
)

func (a *app) benchRestoreCmd() *cobra.Command {
	var o bench.QueueOptions
	cmd := &cobra.Command{
		Use: "restore", Short: "Measure a backup of a long queue, and its restore into a new cluster", Args: exactly(),
		Long: `Queues many actions that wait for cores, and saves a backup. Then it restores the backup into a
new cluster of three servers. The times are those of the two commands, and until all servers
have the restored state.`,
		Example: "  rota bench restore --actions 1000000 -o json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			r, err := bench.Restore(cmd.Context(), o, func(queued int) {
				if queued%(100*o.Batch) == 0 {
					fmt.Fprintf(a.err, "%d queued\n", queued)
				}
			})
			if err != nil {
				return err
			}
			return a.printValue(r, []string{"actions", "backup", "save s", "restore s", "all servers s"}, [][]string{{
				fmt.Sprint(r.Actions), formatSize(r.Bytes), fmt.Sprintf("%.1f", r.SaveSeconds), fmt.Sprintf("%.1f", r.RestoreSeconds), fmt.Sprintf("%.1f", r.AllSeconds),
			}})
		},
	}
	clusterFlags(cmd.Flags(), &o.Cluster)
	cmd.Flags().IntVar(&o.Actions, "actions", 1_000_000, "actions to queue")
	cmd.Flags().IntVar(&o.Size, "size", 300, "bytes of an encoded action")
	cmd.Flags().IntVar(&o.Batch, "batch", 1000, "actions in a request")
	return cmd
}
