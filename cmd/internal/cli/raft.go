package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"rota/api/client"
	rotav1 "rota/api/gen/rota/v1"
)

func (a *app) raftCmd() *cobra.Command {
	return group("raft", "See and change who replicates the state",
		a.listPeersCmd(),
		a.addPeerCmd("join", false, "Add a server that replicates without a vote",
			"A new server is started without --bootstrap, joined, and made a voter with add-voter\nonce it has caught up."),
		a.addPeerCmd("add-voter", true, "Give a server a vote", ""),
		a.removePeerCmd(), a.transferLeaderCmd(), a.snapshotCmd())
}

func (a *app) listPeersCmd() *cobra.Command {
	return &cobra.Command{
		Use: "list-peers", Short: "List the servers of the cluster", Args: exactly(),
		Example: "  rota operator raft list-peers",
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.dial()
			if err != nil {
				return err
			}
			resp, err := call(cmd.Context(), a, c.Operator.ListPeers, &rotav1.ListPeersRequest{})
			if err != nil {
				return err
			}
			rows := make([][]string, 0, len(resp.Peers))
			for _, p := range resp.Peers {
				role := "non-voter"
				if p.Voter {
					role = "voter"
				}
				if p.Leader {
					role = "leader"
				}
				rows = append(rows, []string{p.Id, p.Address, role})
			}
			return a.print(resp, []string{"id", "address", "role"}, rows)
		},
	}
}

func (a *app) addPeerCmd(use string, voter bool, short, long string) *cobra.Command {
	return &cobra.Command{
		Use: use + " ID ADDRESS", Short: short, Long: long, Args: exactly("ID", "ADDRESS"),
		Example: "  rota operator raft " + use + " server-4 10.0.0.4:7400",
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.dial()
			if err != nil {
				return err
			}
			resp, err := call(cmd.Context(), a, c.Operator.AddPeer,
				&rotav1.AddPeerRequest{Id: args[0], Address: args[1], Voter: voter})
			if err != nil {
				return err
			}
			return a.printFields(resp, []field{{"added", args[0]}})
		},
	}
}

func (a *app) removePeerCmd() *cobra.Command {
	return &cobra.Command{
		Use: "remove-peer ID", Short: "Remove a server from the cluster", Args: exactly("ID"),
		Example: "  rota operator raft remove-peer server-4",
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.dial()
			if err != nil {
				return err
			}
			resp, err := call(cmd.Context(), a, c.Operator.RemovePeer, &rotav1.RemovePeerRequest{Id: args[0]})
			if err != nil {
				return err
			}
			return a.printFields(resp, []field{{"removed", args[0]}})
		},
	}
}

func (a *app) transferLeaderCmd() *cobra.Command {
	return &cobra.Command{
		Use: "transfer-leader [ID]", Short: "Hand leadership over, to a given server or any", Args: atMostOne("ID"),
		Example: "  rota operator raft transfer-leader server-2",
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.dial()
			if err != nil {
				return err
			}
			req := &rotav1.TransferLeadershipRequest{}
			if len(args) == 1 {
				req.Id = args[0]
			}
			resp, err := call(cmd.Context(), a, c.Operator.TransferLeadership, req)
			if err != nil {
				return err
			}
			// The old leader steps down before it knows who follows.
			if resp.LeaderId == "" {
				if resp.LeaderId, err = a.awaitLeader(cmd.Context(), c); err != nil {
					return err
				}
			}
			return a.printFields(resp, []field{{"leader", resp.LeaderId}})
		},
	}
}

// awaitLeader returns the leader once the server that is asked knows one.
func (a *app) awaitLeader(ctx context.Context, c *client.Client) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, a.settings.timeout)
	defer cancel()
	for {
		status, err := c.Operator.GetStatus(ctx, &rotav1.GetStatusRequest{})
		if err != nil || status.LeaderId != "" {
			return status.GetLeaderId(), err
		}
		select {
		case <-ctx.Done():
			return "", ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (a *app) snapshotCmd() *cobra.Command {
	return &cobra.Command{
		Use: "snapshot", Short: "Make the server at --addr write a snapshot now", Args: exactly(),
		Example: "  rota operator raft snapshot --addr 127.0.0.1:7400",
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.dial()
			if err != nil {
				return err
			}
			resp, err := call(cmd.Context(), a, c.Operator.TakeSnapshot, &rotav1.TakeSnapshotRequest{})
			if err != nil {
				return err
			}
			return a.printFields(resp, []field{{"index", fmt.Sprint(resp.Index)}, {"size", formatSize(resp.SizeBytes)}})
		},
	}
}
