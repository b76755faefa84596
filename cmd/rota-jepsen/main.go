// Command rota-jepsen breaks rota on purpose and says whether it kept its
// promises: by a simulation of the state machine, leases and agents from a seed
// (dst), and by clusters of real processes under real faults (run).
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
)

// Exit codes.
const (
	exitViolation = 1
	exitUsage     = 2
	exitVoid      = 3 // it proved nothing
)

const exitCodesHelp = `Exit codes:

  0  every promise was kept
  1  a promise was broken
  2  the command line is wrong, or this machine lacks something
  3  the run proves nothing: a fault did not happen, say, or there was too little load`

// codeError is an error that decides the exit code. With a nil error nothing
// more is printed.
type codeError struct {
	code int
	err  error
}

func (e *codeError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

func (e *codeError) Unwrap() error { return e.err }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// The first signal ends the run in order, the second one ends it.
	context.AfterFunc(ctx, stop)
	defer stop()
	os.Exit(exitCode(root().ExecuteContext(ctx)))
}

func root() *cobra.Command {
	cmd := &cobra.Command{
		Use: "rota-jepsen", Short: "Break rota on purpose, and check that it keeps its promises",
		Long: "Breaks rota on purpose, and checks that it keeps its promises.\n\n" + exitCodesHelp,
		Example: `  rota-jepsen list
  rota-jepsen run leader-kill
  rota-jepsen dst --seeds 100`,
		SilenceErrors: true, SilenceUsage: true,
	}
	cmd.AddCommand(newRun(), newCheck(), newList(), newDST(), newMutants())
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return &codeError{exitUsage, fmt.Errorf("%w\nSee: %s --help", err, cmd.CommandPath())}
	})
	return cmd
}

// exitCode prints what is left to say and chooses the exit code.
func exitCode(err error) int {
	if err == nil {
		return 0
	}
	code := exitUsage
	var coded *codeError
	if errors.As(err, &coded) {
		code = coded.code
	}
	if coded == nil || coded.err != nil {
		fmt.Fprintf(os.Stderr, "rota-jepsen: %s\n", strings.TrimRight(err.Error(), "\n"))
	}
	return code
}
