package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"rota/api/backoff"
	"rota/api/client"
	rotav1 "rota/api/gen/rota/v1"
)

func (a *app) raftCmd() *cobra.Command {
	return group("raft", "See and change the servers that replicate the state",
		a.reads(a.listPeersCmd()),
		a.addPeerCmd("join", false, "Add a server that replicates without a vote",
			"Start the new server without --bootstrap, join it, and give it a vote with add-voter when\nit has caught up. The server must answer at the address that it advertises."),
		a.addPeerCmd("add-voter", true, "Give a server a vote",
			"The server must have joined. The leader waits some seconds until the server has caught up\nand all voters have answered. Otherwise it changes nothing."),
		a.movePeerCmd(), a.removePeerCmd(), a.transferLeaderCmd(), a.snapshotCmd())
}

func (a *app) listPeersCmd() *cobra.Command {
	return &cobra.Command{
		Use: "list-peers", Short: "List the servers of the cluster, and which of them answer", Args: exactly(),
		Long: `Shows the leader's list of servers, and whether each server answers. With --stale, it shows
the list of the server at --addr. That list may be older, but needs no leader.`,
		Example: "  rota operator raft list-peers\n  rota operator raft list-peers --stale",
		RunE: a.with(func(ctx context.Context, c *client.Client, _ []string) error {
			resp, err := call(ctx, a, c.Operator.ListPeers, &rotav1.ListPeersRequest{Contact: true})
			if err != nil {
				return err
			}
			rows := make([][]string, 0, len(resp.Peers))
			for _, p := range resp.Peers {
				rows = append(rows, []string{p.Id, p.Address, peerRole(p), yesNo(p.GetAnswers())})
			}
			return a.print(resp, []string{"id", "address", "role", "answers"}, rows)
		}),
	}
}

func peerRole(p *rotav1.Peer) string {
	switch {
	case p.Leader:
		return "leader"
	case p.Voter:
		return "voter"
	}
	return "non-voter"
}

func yesNo(yes bool) string {
	if yes {
		return "yes"
	}
	return "no"
}

func (a *app) addPeerCmd(use string, voter bool, short, long string) *cobra.Command {
	return &cobra.Command{
		Use: use + " ID ADDRESS", Short: short, Long: long, Args: exactly("ID", "ADDRESS"),
		Example: "  rota operator raft " + use + " server-4 10.0.0.4:7400",
		RunE: a.with(func(ctx context.Context, c *client.Client, args []string) error {
			resp, err := call(ctx, a, c.Operator.AddPeer,
				&rotav1.AddPeerRequest{Id: args[0], Address: args[1], Voter: voter})
			if err != nil {
				return err
			}
			return a.printFields(resp, []field{{"added", args[0]}})
		}),
	}
}

func (a *app) movePeerCmd() *cobra.Command {
	return &cobra.Command{
		Use: "move-peer ID ADDRESS", Short: "Change the address of a server", Args: exactly("ID", "ADDRESS"),
		Long:    "Restart the server with --advertise first: it must answer at the new address and advertise\nthat address. The server does not lose its data or its vote.",
		Example: "  rota operator raft move-peer server-4 10.0.0.14:7400",
		RunE: a.with(func(ctx context.Context, c *client.Client, args []string) error {
			resp, err := call(ctx, a, c.Operator.MovePeer, &rotav1.MovePeerRequest{Id: args[0], Address: args[1]})
			if err != nil {
				return err
			}
			return a.printFields(resp, []field{{"moved", args[0]}, {"address", args[1]}})
		}),
	}
}

func (a *app) removePeerCmd() *cobra.Command {
	return &cobra.Command{
		Use: "remove-peer ID", Short: "Remove a server from the cluster", Args: exactly("ID"),
		Example: "  rota operator raft remove-peer server-4",
		RunE: a.with(func(ctx context.Context, c *client.Client, args []string) error {
			resp, err := call(ctx, a, c.Operator.RemovePeer, &rotav1.RemovePeerRequest{Id: args[0]})
			if err != nil {
				return err
			}
			return a.printFields(resp, []field{{"removed", args[0]}})
		}),
	}
}

func (a *app) transferLeaderCmd() *cobra.Command {
	return &cobra.Command{
		Use: "transfer-leader [ID]", Short: "Move leadership to the given server, or to any server", Args: atMostOne("ID"),
		Example: "  rota operator raft transfer-leader server-2",
		RunE: a.with(func(ctx context.Context, c *client.Client, args []string) error {
			req := &rotav1.TransferLeadershipRequest{}
			if len(args) == 1 {
				req.Id = args[0]
			}
			resp, err := call(ctx, a, c.Operator.TransferLeadership, req)
			if err != nil {
				return err
			}
			// The old leader steps down before it knows the next leader.
			if resp.LeaderId == "" {
				if resp.LeaderId, err = a.awaitLeader(ctx, c); err != nil {
					return err
				}
			}
			return a.printFields(resp, []field{{"leader", resp.LeaderId}})
		}),
	}
}

// awaitLeader returns the leader as soon as the server knows a leader.
func (a *app) awaitLeader(ctx context.Context, c *client.Client) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, a.settings.timeout)
	defer cancel()
	for {
		status, err := c.Operator.GetStatus(ctx, &rotav1.GetStatusRequest{})
		if err != nil || status.LeaderId != "" {
			return status.GetLeaderId(), err
		}
		if err := backoff.Sleep(ctx, 20*time.Millisecond); err != nil {
			return "", err
		}
	}
}

func (a *app) snapshotCmd() *cobra.Command {
	return &cobra.Command{
		Use: "snapshot", Short: "Make the server at --addr write a snapshot now", Args: exactly(),
		Example: "  rota operator raft snapshot --addr 127.0.0.1:7400",
		RunE: a.with(func(ctx context.Context, c *client.Client, _ []string) error {
			resp, err := call(ctx, a, c.Operator.TakeSnapshot, &rotav1.TakeSnapshotRequest{})
			if err != nil {
				return err
			}
			return a.printFields(resp, []field{{"index", fmt.Sprint(resp.Index)}, {"size", formatSize(resp.SizeBytes)}})
		}),
	}
}
