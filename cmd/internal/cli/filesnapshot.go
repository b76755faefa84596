package cli

import (
	"context"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"rota/api/client"
	rotav1 "rota/api/gen/rota/v1"
)

func (a *app) fileSnapshotCmd() *cobra.Command {
	return group("snapshot", "Take snapshots of the files of trajectories, which others begin with",
		a.fileSnapshotCreateCmd(), a.reads(a.fileSnapshotListCmd()), a.reads(a.fileSnapshotGetCmd()), a.fileSnapshotDeleteCmd())
}

func (a *app) fileSnapshotCreateCmd() *cobra.Command {
	var name string
	var background bool
	cmd := &cobra.Command{
		Use: "create TRAJECTORY", Short: "Take a snapshot of the files of a trajectory", Args: exactly("TRAJECTORY"),
		Long: `Takes a snapshot of the files of a trajectory as they are now: its directory, and with a
container the root file system. No action of the trajectory may run. Other trajectories
begin with the files by: rota trajectory open --snapshot ID

A snapshot lives on the node of the trajectory, and stays there when the trajectory has
ended. It goes with the node. It has no processes, memory, /dev/shm or /tmp of the node.`,
		Example: "  rota snapshot create 7 --name after-install\n  id=$(rota snapshot create 7 -o json | jq -r .id)\n  rota trajectory open --snapshot $id",
		RunE: a.withID(func(ctx context.Context, c *client.Client, id uint64) error {
			s, err := c.CreateSnapshot(ctx, &rotav1.CreateSnapshotRequest{TrajectoryId: id, Name: name})
			if err == nil && !background {
				s, err = c.WaitSnapshot(ctx, s.GetId())
			}
			if err != nil {
				return err
			}
			return a.printFileSnapshot(s)
		}),
	}
	cmd.Flags().StringVar(&name, "name", "", "free text for humans")
	cmd.Flags().BoolVar(&background, "no-wait", false, "return before the snapshot is ready")
	return cmd
}

func (a *app) fileSnapshotListCmd() *cobra.Command {
	var node string
	var trajectory uint64
	cmd := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List snapshots", Args: exactly(),
		Example: "  rota snapshot list\n  rota snapshot list --trajectory 7 -n '*'",
		RunE: a.with(func(ctx context.Context, c *client.Client, _ []string) error {
			all := &rotav1.ListSnapshotsResponse{}
			req := &rotav1.ListSnapshotsRequest{Namespace: a.settings.namespace, Node: node, TrajectoryId: trajectory, PageSize: 1000}
			err := pages(ctx, a, c.Snapshots.ListSnapshots, req, &req.PageToken, func(page *rotav1.ListSnapshotsResponse) {
				all.Snapshots = append(all.Snapshots, page.Snapshots...)
			})
			if err != nil {
				return err
			}
			rows := make([][]string, 0, len(all.Snapshots))
			for _, s := range all.Snapshots {
				rows = append(rows, []string{strconv.FormatUint(s.Id, 10), enumWord(s.State, "SNAPSHOT_STATE_"), s.Name,
					optionalID(s.TrajectoryId), s.Node, formatSize(s.Bytes), s.Image, formatTime(s.CreateTime)})
			}
			return a.print(all, []string{"id", "state", "name", "trajectory", "node", "size", "image", "created"}, rows)
		}),
	}
	cmd.Flags().StringVar(&node, "node", "", "list only snapshots on this node")
	cmd.Flags().Uint64Var(&trajectory, "trajectory", 0, "list only snapshots of this trajectory")
	return cmd
}

func (a *app) fileSnapshotGetCmd() *cobra.Command {
	return &cobra.Command{
		Use: "get ID", Short: "Show one snapshot", Args: exactly("ID"), Example: "  rota snapshot get 3",
		RunE: a.withID(func(ctx context.Context, c *client.Client, id uint64) error {
			resp, err := call(ctx, a, c.Snapshots.GetSnapshot, &rotav1.GetSnapshotRequest{Id: id})
			if err != nil {
				return err
			}
			return a.printFileSnapshot(resp.GetSnapshot())
		}),
	}
}

func (a *app) fileSnapshotDeleteCmd() *cobra.Command {
	return &cobra.Command{
		Use: "delete ID", Aliases: []string{"rm"}, Short: "Remove a snapshot; trajectories that began with it keep their files", Args: exactly("ID"),
		Example: "  rota snapshot delete 3",
		RunE: a.withID(func(ctx context.Context, c *client.Client, id uint64) error {
			_, err := call(ctx, a, c.Snapshots.DeleteSnapshot, &rotav1.DeleteSnapshotRequest{Id: id})
			return err
		}),
	}
}

func (a *app) printFileSnapshot(s *rotav1.Snapshot) error {
	return a.printFields(s, []field{
		{"snapshot", strconv.FormatUint(s.GetId(), 10)},
		{"state", enumWord(s.GetState(), "SNAPSHOT_STATE_")},
		{"message", s.GetMessage()},
		{"name", s.GetName()},
		{"namespace", s.GetNamespace()},
		{"trajectory", fmt.Sprint(s.GetTrajectoryId())},
		{"node", s.GetNode()},
		{"image", s.GetImage()},
		{"size", formatSize(s.GetBytes())},
		{"created", formatTime(s.GetCreateTime())},
		{"ended", formatTime(s.GetEndTime())},
	})
}
