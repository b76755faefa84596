package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"rota/api/client"
	rotav1 "rota/api/gen/rota/v1"
	"rota/server/autopilot"
)

// autopilotFlags are those of rota server.
func autopilotFlags(fs *pflag.FlagSet, s *autopilot.Settings) {
	fs.BoolVar(&s.Enabled, "autopilot", false, "as the leader, give servers that joined a vote, and remove servers that stay dead; give all servers the same settings")
	fs.DurationVar(&s.PromoteAfter, "autopilot-promote-after", 10*time.Second, "with --autopilot: how long a server must be healthy to get a vote")
	fs.DurationVar(&s.RemoveAfter, "autopilot-remove-after", 24*time.Hour, "with --autopilot: how long a server must be dead to be removed; 0: never")
	fs.IntVar(&s.VotersMin, "autopilot-voters-min", 3, "with --autopilot: fewest voters, with healthy replacements, that a removal may leave")
}

func (a *app) autopilotCmd() *cobra.Command {
	return group("autopilot", "See the health of the servers, and what the leader does about it", a.autopilotStateCmd())
}

func (a *app) autopilotStateCmd() *cobra.Command {
	return &cobra.Command{
		Use: "state", Short: "Show the health of each server as the leader sees it", Args: exactly(),
		Long: `The leader asks every server once a second. The command exits with 0 only if all servers
are healthy. With --autopilot, the leader gives votes to servers that joined and removes
dead ones; of the servers of a zone (rota server --zone), it keeps one voter. The column NEXT
says what it does next.`,
		Example: "  rota operator autopilot state",
		RunE: a.with(func(ctx context.Context, c *client.Client, _ []string) error {
			s, err := call(ctx, a, c.Operator.GetAutopilot, &rotav1.GetAutopilotRequest{})
			if err != nil {
				return err
			}
			rows := make([][]string, 0, len(s.Servers))
			for _, v := range s.Servers {
				health := "healthy"
				if !v.Healthy {
					health = v.Reason
				}
				rows = append(rows, []string{v.Id, v.Address, orDash(v.Zone), peerRole(&rotav1.Peer{Leader: v.Leader, Voter: v.Voter}), health,
					v.Since.AsDuration().Round(time.Second).String(), fmt.Sprint(v.AppliedIndex), v.Next})
			}
			if err := a.print(s, []string{"server", "address", "zone", "role", "health", "since", "applied", "next"}, rows); err != nil {
				return err
			}
			if !a.json() {
				fmt.Fprintf(a.out, "\nfailure tolerance %d; autopilot is %s\n", s.FailureTolerance, autopilotText(s))
			}
			if !s.Healthy {
				return &codeError{exitError, fmt.Errorf("not all servers are healthy")}
			}
			return nil
		}),
	}
}

func autopilotText(s *rotav1.GetAutopilotResponse) string {
	if !s.Enabled {
		return "off: members change by command only"
	}
	removes := "removes none"
	if after := s.RemoveAfter.AsDuration(); after > 0 {
		removes = fmt.Sprintf("removes dead servers after %s down to %d voters", after, s.VotersMin)
	}
	return fmt.Sprintf("on: gives votes after %s, %s", s.PromoteAfter.AsDuration(), removes)
}
