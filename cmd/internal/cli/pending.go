package cli

import "github.com/spf13/cobra"

func (a *app) serverCmd() *cobra.Command    { return group("server", "pending") }
func (a *app) agentCmd() *cobra.Command     { return group("agent", "pending") }
func (a *app) superviseCmd() *cobra.Command { return group("supervise", "pending") }
