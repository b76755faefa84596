package cli

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	rotav1 "rota/api/gen/rota/v1"
	"rota/cmd/internal/devcluster"
)

func (a *app) operatorCmd() *cobra.Command {
	return group("operator", "Run the cluster: status, membership, backups, recovery, health, debugging",
		a.statusCmd(), a.raftCmd(), a.stateHashCmd(), a.backupCmd(), a.recoverCmd(),
		a.completed(group("namespace", "Create, share out, limit, list and delete namespaces",
			a.namespaceCreateCmd(), a.namespaceSetCmd(), a.reads(a.namespaceGetCmd()), a.reads(a.namespaceListCmd()),
			a.reads(a.namespaceUsageCmd()), a.namespaceDeleteCmd()), listNamespaceNames),
		a.completed(group("pool", "List and delete pools, and resume halted ones",
			a.reads(a.poolListCmd()), a.poolResumeCmd(), a.poolDeleteCmd()), listPoolNames),
		a.upgradeCmd(), a.autopilotCmd(), a.keyringCmd(), a.readyCmd(), a.logLevelCmd(), a.debugCmd())
}

func (a *app) statusCmd() *cobra.Command {
	return &cobra.Command{
		Use: "status", Short: "Show the state of the cluster as the server at --addr sees it", Args: exactly(),
		Example: "  rota operator status -o json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.dial()
			if err != nil {
				return err
			}
			s, err := call(cmd.Context(), a, c.Operator.GetStatus, &rotav1.GetStatusRequest{})
			if err != nil {
				return err
			}
			leader := "none"
			if s.LeaderId != "" {
				leader = s.LeaderId + " at " + s.LeaderAddress
			}
			quarantined := ""
			if s.Quarantined {
				quarantined = "yes: opened below its high-water mark; it votes again when it has caught up"
			}
			return a.printFields(s, []field{
				{"cluster", s.ClusterId}, {"server", s.ServerId}, {"leader", leader},
				{"term", fmt.Sprint(s.Term)}, {"applied", fmt.Sprintf("%d of %d", s.AppliedIndex, s.CommitIndex)},
				{"log time", formatTime(s.LogTime)},
				{"version", fmt.Sprintf("%s, feature level %d (supports up to %d)", s.Version, s.FeatureLevel, s.FeatureLevelMax)},
				{"queued", fmt.Sprint(s.QueuedActions)}, {"running", fmt.Sprint(s.RunningActions)},
				{"trajectories", fmt.Sprint(s.OpenTrajectories)}, {"nodes up", fmt.Sprint(s.NodesUp)},
				{"quarantined", quarantined}, {"state", originText(s.Origin)}, {"upload", uploadText(s.StagedRestore)},
			})
		},
	}
}

// uploadText describes a backup that is being uploaded; empty without one.
func uploadText(u *rotav1.StagedRestore) string {
	if u == nil {
		return ""
	}
	return fmt.Sprintf("%d parts of a backup, dropped at %s if no further one comes", u.Parts, formatTime(u.ExpireTime))
}

// originText says how a state came into its cluster; empty if the cluster was founded with it.
func originText(o *rotav1.StateOrigin) string {
	switch o.GetKind() {
	case rotav1.StateOrigin_KIND_RESTORED:
		return fmt.Sprintf("restored %s from a backup of cluster %s at index %d", formatTime(o.Time), o.ClusterId, o.Index)
	case rotav1.StateOrigin_KIND_RECOVERED:
		return fmt.Sprintf("recovered from cluster %s at index %d, log time %s, after its majority was lost", o.ClusterId, o.Index, formatTime(o.Time))
	}
	return ""
}

func (a *app) namespaceCreateCmd() *cobra.Command {
	return &cobra.Command{
		Use: "create NAME", Short: "Create a namespace", Args: exactly("NAME"),
		Example: "  rota operator namespace create team-a",
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.dial()
			if err != nil {
				return err
			}
			resp, err := call(cmd.Context(), a, c.Operator.CreateNamespace, &rotav1.CreateNamespaceRequest{Name: args[0]})
			if err != nil {
				return err
			}
			return a.printFields(resp, []field{{"created", args[0]}})
		},
	}
}

func (a *app) namespaceListCmd() *cobra.Command {
	return &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List namespaces", Args: exactly(),
		Long:    "Lists namespaces with their weights, what they hold, and of how much at most. The share is the\npart that one would get of each resource if all that run or wait now wanted all of it.",
		Example: "  rota operator namespace list",
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.dial()
			if err != nil {
				return err
			}
			resp, err := call(cmd.Context(), a, c.Operator.ListNamespaces, &rotav1.ListNamespacesRequest{})
			if err != nil {
				return err
			}
			rows := make([][]string, 0, len(resp.Namespaces))
			for _, n := range resp.Namespaces {
				row := make([]string, 0, len(namespaceHeader))
				for _, f := range namespaceFields(n) {
					row = append(row, f.value)
				}
				rows = append(rows, row)
			}
			return a.print(resp, namespaceHeader, rows)
		},
	}
}

func (a *app) namespaceDeleteCmd() *cobra.Command {
	return &cobra.Command{
		Use: "delete NAME", Short: "Delete an empty namespace", Args: exactly("NAME"),
		Long: `Deletes a namespace without actions, trajectories, jobs and classes. Ended actions and
trajectories count until rota forgets them, by default an hour later.`,
		Example: "  rota operator namespace delete team-a",
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.dial()
			if err != nil {
				return err
			}
			resp, err := call(cmd.Context(), a, c.Operator.DeleteNamespace, &rotav1.DeleteNamespaceRequest{Name: args[0]})
			if err != nil {
				return err
			}
			return a.printFields(resp, []field{{"deleted", args[0]}})
		},
	}
}

func (a *app) poolDeleteCmd() *cobra.Command {
	return &cobra.Command{
		Use: "delete NAME", Short: "Delete an empty pool", Args: exactly("NAME"),
		Long: `Deletes a pool without nodes, trajectories and actions. No node group may name the pool
for its hooks. Ended actions and trajectories count until rota forgets them, by default
an hour later. If a node registers in the pool later, rota creates the pool again.`,
		Example: "  rota operator pool delete old-gpus",
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.dial()
			if err != nil {
				return err
			}
			resp, err := call(cmd.Context(), a, c.Operator.DeletePool, &rotav1.DeletePoolRequest{Name: args[0]})
			if err != nil {
				return err
			}
			return a.printFields(resp, []field{{"deleted", args[0]}})
		},
	}
}

func (a *app) poolListCmd() *cobra.Command {
	return &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List pools, and why a pool is halted", Args: exactly(),
		Example: "  rota operator pool list",
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.dial()
			if err != nil {
				return err
			}
			resp, err := call(cmd.Context(), a, c.Operator.ListPools, &rotav1.ListPoolsRequest{})
			if err != nil {
				return err
			}
			rows := make([][]string, 0, len(resp.Pools))
			for _, p := range resp.Pools {
				rows = append(rows, []string{p.Name, fmt.Sprint(p.NodesUp), fmt.Sprint(p.QueuedActions), fmt.Sprint(p.QueuedForQuotas), fmt.Sprint(p.QueuedForGpus), p.Halted})
			}
			return a.print(resp, []string{"name", "nodes up", "queued", "for quotas", "for GPUs", "halted"}, rows)
		},
	}
}

func (a *app) poolResumeCmd() *cobra.Command {
	return &cobra.Command{
		Use: "resume NAME", Short: "Resume a pool that a failed decision has halted", Args: exactly("NAME"),
		Example: "  rota operator pool resume default",
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.dial()
			if err != nil {
				return err
			}
			resp, err := call(cmd.Context(), a, c.Operator.ResumePool, &rotav1.ResumePoolRequest{Name: args[0]})
			if err != nil {
				return err
			}
			return a.printFields(resp, []field{{"resumed", args[0]}})
		},
	}
}

func (a *app) stateHashCmd() *cobra.Command {
	return &cobra.Command{
		Use: "state-hash", Short: "Compare the state of all servers", Args: exactly(),
		Long: `Asks every server for the hash of its state. Only hashes of the same index can be compared,
so servers that are behind catch up first. The command exits with 0 only if all servers
answer and all hashes are equal.`,
		Example: "  rota operator state-hash && echo same",
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.dial()
			if err != nil {
				return err
			}
			peers, err := call(cmd.Context(), a, c.Operator.ListPeers, &rotav1.ListPeersRequest{})
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), a.settings.timeout)
			defer cancel()
			report := devcluster.CompareHashes(ctx, peers.Peers, a.dialTo)
			rows := make([][]string, 0, len(report.Servers))
			for _, s := range report.Servers {
				rows = append(rows, []string{s.ID, s.Address, strconv.FormatUint(s.Index, 10), s.Hash, s.Error})
			}
			if err := a.printValue(report, []string{"server", "address", "index", "hash", "error"}, rows); err != nil {
				return err
			}
			if !report.Equal {
				return &codeError{exitError, errors.New("the state hashes are not equal, or not all servers answered for one index")}
			}
			return nil
		},
	}
}
