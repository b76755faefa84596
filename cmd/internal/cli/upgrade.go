package cli

import (
	"cmp"
	"context"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"rota/api/client"
	rotav1 "rota/api/gen/rota/v1"
)

func (a *app) upgradeCmd() *cobra.Command {
	return group("upgrade", "See which releases run, and activate the features of a new one", a.upgradeStatusCmd(), a.upgradeActivateCmd())
}

func (a *app) upgradeStatusCmd() *cobra.Command {
	return &cobra.Command{
		Use: "status", Short: "Show the release and the feature levels of each server, and what blocks an activation", Args: exactly(),
		Long: `The feature level is a part of the state. A new binary never changes it. While every server
of an upgrade runs the new release and the level is not activated, each server can go back.`,
		Example: "  rota operator upgrade status",
		RunE: a.with(func(ctx context.Context, c *client.Client, _ []string) error {
			u, err := call(ctx, a, c.Operator.GetUpgrade, &rotav1.GetUpgradeRequest{})
			if err != nil {
				return err
			}
			return a.printUpgrade(u)
		}),
	}
}

func (a *app) printUpgrade(u *rotav1.GetUpgradeResponse) error {
	rows := make([][]string, 0, len(u.Servers))
	for _, s := range u.Servers {
		level, role := fmt.Sprint(s.LevelMax), ""
		if s.Error != "" {
			level = s.Error
		}
		if s.Leader {
			role = "leader"
		}
		rows = append(rows, []string{s.Id, s.Address, role, s.Version, level})
	}
	if err := a.print(u, []string{"server", "address", "role", "version", "supports up to level"}, rows); err != nil || a.json() {
		return err
	}
	next := "nothing to activate: " + u.Blocked
	if u.Blocked == "" {
		next = fmt.Sprintf("level %d can be activated: `rota operator upgrade activate`", u.LevelCommon)
	}
	fmt.Fprintf(a.out, "\nactive level %d; %s\n", u.Level, next)
	return nil
}

func (a *app) upgradeActivateCmd() *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use: "activate [LEVEL]", Short: "End an upgrade: activate the new features of the release", Args: atMostOne("LEVEL"),
		Long: `Raises the feature level of the cluster to LEVEL, or to the newest level that all servers
support. Before that, the servers behave like the release before, and each server can go
back to that release. You cannot lower the level again. The command fails unless every
server answers and supports the level.

Without --yes, the command shows what would happen and changes nothing.`,
		Example: "  rota operator upgrade activate\n  rota operator upgrade activate --yes",
		RunE: a.with(func(ctx context.Context, c *client.Client, args []string) error {
			var level uint64
			if len(args) > 0 {
				var err error
				if level, err = strconv.ParseUint(args[0], 10, 32); err != nil || level == 0 {
					return usageErrorf("%q is not a feature level; give a number of 1 or more", args[0])
				}
			}
			if !yes {
				return a.previewActivation(ctx, c, uint32(level))
			}
			resp, err := call(ctx, a, c.Operator.RaiseLevel, &rotav1.RaiseLevelRequest{Level: uint32(level)})
			if err != nil {
				return err
			}
			return a.printFields(resp, []field{{"feature level", fmt.Sprint(resp.Level)}})
		}),
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "activate the level; there is no way back")
	return cmd
}

// previewActivation says what activate would do; an error if it would fail.
func (a *app) previewActivation(ctx context.Context, c *client.Client, level uint32) error {
	u, err := call(ctx, a, c.Operator.GetUpgrade, &rotav1.GetUpgradeRequest{})
	if err != nil {
		return err
	}
	to := cmp.Or(level, u.LevelCommon)
	switch {
	case u.LevelCommon == 0 || u.Blocked != "" && level == 0:
		return &codeError{exitError, fmt.Errorf("nothing can be activated: %s", u.Blocked)}
	case to > u.LevelCommon:
		return &codeError{exitError, fmt.Errorf("not every server supports level %d: see `rota operator upgrade status`", to)}
	case to <= u.Level:
		return &codeError{exitError, fmt.Errorf("level %d is active: a level cannot be lowered", u.Level)}
	}
	return a.printFields(u, []field{
		{"active level", fmt.Sprint(u.Level)}, {"would activate", fmt.Sprint(to)},
		{"consequence", fmt.Sprintf("servers that support less than level %d can never take part again", to)},
		{"to do it", "repeat the command with --yes"},
	})
}
