package cli

import (
	"context"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	simulatedengine "rota/agent/engine/simulated"
)

// simulatedEngineCmd is what tests and benchmarks register as the engine of a model.
func (a *app) simulatedEngineCmd() *cobra.Command {
	return &cobra.Command{
		Use: simulatedengine.Command, Short: "Be a simulated engine of a model", Hidden: true, DisableFlagParsing: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, stop := signal.NotifyContext(context.WithoutCancel(cmd.Context()), syscall.SIGTERM, syscall.SIGINT)
			defer stop()
			if code := simulatedengine.Main(ctx, args, a.err); code != 0 {
				return &codeError{code: code}
			}
			return nil
		},
	}
}
