package cli

import (
	"context"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	rotav1 "rota/api/gen/rota/v1"
)

func (a *app) operatorCmd() *cobra.Command {
	return group("operator", "Run the cluster: status, membership, state hashes",
		a.statusCmd(), a.raftCmd(), a.stateHashCmd(),
		group("namespace", "Create and list namespaces", a.namespaceCreateCmd(), a.namespaceListCmd()),
		group("pool", "List pools and resume halted ones", a.poolListCmd(), a.poolResumeCmd()))
}

func (a *app) statusCmd() *cobra.Command {
	return &cobra.Command{
		Use: "status", Short: "Describe the cluster as the server at --addr sees it", Args: exactly(),
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
				{"version", fmt.Sprintf("%s, scheduler %d", s.Version, s.SchedulerVersion)},
				{"queued", fmt.Sprint(s.QueuedActions)}, {"running", fmt.Sprint(s.RunningActions)},
				{"trajectories", fmt.Sprint(s.OpenTrajectories)}, {"nodes up", fmt.Sprint(s.NodesUp)},
				{"quarantined", quarantined},
			})
		},
	}
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
				rows = append(rows, []string{n.Name, fmt.Sprint(n.QueuedActions)})
			}
			return a.print(resp, []string{"name", "queued"}, rows)
		},
	}
}

func (a *app) poolListCmd() *cobra.Command {
	return &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List pools and why they are halted, if they are", Args: exactly(),
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
				rows = append(rows, []string{p.Name, fmt.Sprint(p.NodesUp), fmt.Sprint(p.QueuedActions), p.Halted})
			}
			return a.print(resp, []string{"name", "nodes up", "queued", "halted"}, rows)
		},
	}
}

func (a *app) poolResumeCmd() *cobra.Command {
	return &cobra.Command{
		Use: "resume NAME", Short: "Let a pool schedule again that a failed decision halted", Args: exactly("NAME"),
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

// serverHash is the answer of one server of `rota operator state-hash`.
type serverHash struct {
	ID      string `json:"id"`
	Address string `json:"address"`
	Index   uint64 `json:"index,omitempty"`
	Hash    string `json:"hash,omitempty"`
	Error   string `json:"error,omitempty"`
}

type hashReport struct {
	Equal   bool         `json:"equal"`
	Servers []serverHash `json:"servers"`
}

func (a *app) stateHashCmd() *cobra.Command {
	return &cobra.Command{
		Use: "state-hash", Short: "Compare the state of all servers", Args: exactly(),
		Long: `Asks every server for the hash of its state. Hashes of different indexes cannot be
compared, so servers that are behind are asked to catch up first. Exits with 0
only if all servers answer and all hashes are equal.`,
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
			report := a.stateHashes(cmd.Context(), peers.Peers)
			rows := make([][]string, 0, len(report.Servers))
			for _, s := range report.Servers {
				rows = append(rows, []string{s.ID, s.Address, strconv.FormatUint(s.Index, 10), s.Hash, s.Error})
			}
			if err := a.printValue(report, []string{"server", "address", "index", "hash", "error"}, rows); err != nil {
				return err
			}
			if !report.Equal {
				return &codeError{exitError, fmt.Errorf("the state hashes are not equal, or not all servers answered at one index")}
			}
			return nil
		},
	}
}

// hashRounds is how often servers are asked again while the log moves on
// between the answers.
const hashRounds = 20

// stateHashes asks all servers until they answer for the same index.
func (a *app) stateHashes(ctx context.Context, peers []*rotav1.Peer) hashReport {
	var report hashReport
	index := uint64(0)
	for range hashRounds {
		report = hashReport{Equal: true}
		newest := index
		for _, p := range peers {
			s := serverHash{ID: p.Id, Address: p.Address}
			resp, err := a.stateHash(ctx, p.Address, index)
			if err != nil {
				s.Error = describe(err, p.Address)
			} else {
				s.Index, s.Hash = resp.Index, resp.Hash
				newest = max(newest, resp.Index)
			}
			report.Servers = append(report.Servers, s)
		}
		first, sameIndex, failed := report.Servers[0], true, false
		for _, s := range report.Servers {
			sameIndex = sameIndex && s.Index == first.Index
			failed = failed || s.Error != ""
			report.Equal = report.Equal && s.Error == "" && s.Index == first.Index && s.Hash == first.Hash
		}
		if sameIndex || failed || ctx.Err() != nil {
			return report
		}
		index = newest
	}
	return report
}

func (a *app) stateHash(ctx context.Context, addr string, minIndex uint64) (*rotav1.GetStateHashResponse, error) {
	c, err := a.dialTo(addr)
	if err != nil {
		return nil, err
	}
	return call(ctx, a, c.Operator.GetStateHash, &rotav1.GetStateHashRequest{MinIndex: minIndex})
}
