package cli

import "github.com/spf13/cobra"

func (a *app) serverCmd() *cobra.Command { return group("server", "pending") }
