package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"rota/api/client"
)

// app is one invocation of the command line.
type app struct {
	out, err io.Writer
	settings settings
	stale    bool       // of commands that read, see reads
	saying   sync.Mutex // guards err in say
	// given are the flags of the command line.
	given map[string]bool
}

// Main runs the command line and returns the exit code of the process.
func Main(args []string) int {
	// The first Ctrl-C asks the command to end, the second one ends it.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	defer stop()
	return run(ctx, args, os.Stdout, os.Stderr)
}

func run(ctx context.Context, args []string, out, errOut io.Writer) int {
	// A command of an action has the trace of the action there.
	ctx = client.WithTraceparent(ctx, os.Getenv("TRACEPARENT"))
	printed := &checkedWriter{to: out}
	a := &app{out: printed, err: errOut}
	root := a.root()
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err == nil {
		err = printed.failure()
	}
	var coded *codeError
	if err != nil && !(errors.As(err, &coded) && coded.err == nil) {
		fmt.Fprintf(errOut, "rota: %s\n", printableLines(strings.TrimRight(describe(err, a.settings.addr), "\n")))
	}
	return exitCode(err)
}

// root builds the tree of commands.
func (a *app) root() *cobra.Command {
	root := group("rota", "Schedule every use of a resource in an agentic RL cluster",
		a.runCmd(), a.completed(a.execCmd(), listTrajectoryIDs), a.completed(a.attachCmd(), listActionIDs), a.completed(a.logsCmd("logs"), listActionIDs),
		a.completed(a.actionCmd(), listActionIDs), a.completed(a.trajectoryCmd(), listTrajectoryIDs), a.fileCmd(), a.cpCmd(), a.fileSnapshotCmd(),
		a.completed(a.classCmd(), listClassNames), a.completed(a.nodeCmd(), listNodeNames), a.gpuCmd(), a.imageCmd(),
		a.completed(a.engineCmd(), listEngineModels), a.completed(a.modelCmd(), listModelNames), a.completed(a.residencyCmd(), listModelNames),
		a.stateCmd(), a.tierCmd(), a.completed(a.migrationCmd(), listMigrationIDs),
		a.completed(a.workerCmd(), listWorkerNames), a.completed(a.rewardCmd(), listRewardNames), a.completed(a.rolloutCmd(), listRolloutIDs), a.sampleCmd(), a.batchCmd(), a.completed(a.policyCmd(), listPolicyNames),
		a.completed(a.quotaCmd(), listQuotaNames), a.completed(a.jobCmd(), listJobNames), a.turnCmd(),
		a.completed(a.nodeGroupCmd(), listGroupNames), a.ledgerCmd(), a.topCmd(), a.reads(a.reportCmd()), a.operatorCmd(), a.tokenCmd(), a.aclCmd(),
		a.devCmd(), a.demoCmd(), a.serverCmd(), a.agentCmd(), a.gatewayCmd(), a.superviseCmd(), a.httpCallCmd(), a.guardCmd(),
		a.benchCmd(), a.simCmd(), a.tlsCmd(), a.configCmd(), a.versionCmd(), exitCodesTopic())
	root.Long = `rota decides when, where and with how many cores and GPUs every action of an RL cluster
runs. Raft replicates the decisions, and agents run the actions.

Start a trial cluster:                rota dev
See a cluster that loses its leader:  rota demo`
	root.Example = `  rota dev
  rota run -- go test strings
  rota action list`
	root.Version = readVersion().text()
	root.SetVersionTemplate("{{.Version}}\n")
	root.SilenceErrors = true
	root.SilenceUsage = true
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		if cmd.DisableFlagParsing {
			return nil // supervise, http-call, kv-files-guard: their agent passes everything
		}
		return a.prepare(cmd)
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usageErrorf("%w\nSee: %s --help", flagError(err), cmd.CommandPath())
	})
	a.settings.addTo(root.PersistentFlags())
	words(root, "output", "table", "json")
	root.SetOut(a.out) // before the command completion is made, which remembers it
	root.SetErr(a.err)
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, cmd := range root.Commands() {
		switch cmd.Name() {
		case "help":
			cmd.Run, cmd.RunE, cmd.Example = nil, helpOf, "  rota help node drain"
		case "completion":
			cmd.Args, cmd.RunE = cobra.ArbitraryArgs, onlyHolds
			for _, shell := range cmd.Commands() {
				shell.Example = "  " + shell.CommandPath()
			}
		}
	}
	return root
}

// prepare fills in the settings of a command and refuses wrong ones, before the command runs.
func (a *app) prepare(cmd *cobra.Command) error {
	a.given = map[string]bool{}
	cmd.Flags().Visit(func(f *pflag.Flag) { a.given[f.Name] = true })
	if err := resolve(cmd, a.settings.config); err != nil {
		return err
	}
	if err := a.settings.check(); err != nil {
		return err
	}
	if err := checkDurations(cmd.Flags()); err != nil {
		return err
	}
	// cobra would do this too, but its errors do not say that the command line is wrong.
	if err := errors.Join(cmd.ValidateRequiredFlags(), cmd.ValidateFlagGroups()); err != nil {
		return usageErrorf("%w\nSee: %s --help", err, cmd.CommandPath())
	}
	if cmd.Annotations[annotationSection] == "" { // the others reload on SIGHUP
		endOnHangup(cmd)
	}
	return nil
}

// endOnHangup makes SIGHUP end a command as Ctrl-C does: a command that waits for an action
// cancels the action. The handler stays after the first SIGHUP, because a terminal that is closed
// may send several.
func endOnHangup(cmd *cobra.Command) {
	if signal.Ignored(syscall.SIGHUP) {
		return // nohup
	}
	ctx, _ := signal.NotifyContext(cmd.Context(), syscall.SIGHUP)
	cmd.SetContext(ctx)
}

// exitCodesTopic is a page of help, not a command.
func exitCodesTopic() *cobra.Command {
	return &cobra.Command{Use: "exit-codes", Short: "Explain the exit codes", Long: exitCodesHelp}
}

// group is a command that only holds others.
func group(use, short string, subs ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{Use: use, Short: short, Args: cobra.ArbitraryArgs, RunE: onlyHolds}
	cmd.SuggestionsMinimumDistance = 2
	cmd.AddCommand(subs...)
	return cmd
}

// onlyHolds is what a command does that only holds others: it shows them.
func onlyHolds(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return cmd.Help()
	}
	hint := "See: " + cmd.CommandPath() + " --help"
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		hint = "Did you mean: " + cmd.CommandPath() + " " + strings.Join(near, " or ")
	}
	return usageErrorf("unknown command %q for %q\n%s", args[0], cmd.CommandPath(), hint)
}

// helpOf is `rota help COMMAND`.
func helpOf(cmd *cobra.Command, args []string) error {
	of, rest, err := cmd.Root().Find(args)
	if err != nil {
		return err
	}
	if len(rest) > 0 && of.HasSubCommands() {
		return onlyHolds(of, rest)
	}
	of.InitDefaultHelpFlag()
	of.InitDefaultVersionFlag()
	return of.Help()
}

// exactly checks the number of arguments and names them if it is wrong.
func exactly(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == len(names) {
			return nil
		}
		if len(names) == 0 {
			return usageErrorf("%q takes no arguments, but got %q", cmd.CommandPath(), args)
		}
		return usageErrorf("usage: %s %s", cmd.CommandPath(), strings.Join(names, " "))
	}
}

func atLeastOne(name string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return usageErrorf("usage: %s %s...", cmd.CommandPath(), name)
		}
		return nil
	}
}

func atMostOne(name string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) > 1 {
			return usageErrorf("usage: %s [%s]", cmd.CommandPath(), name)
		}
		return nil
	}
}

// words completes a flag from a fixed list.
func words(cmd *cobra.Command, flag string, values ...string) {
	err := cmd.RegisterFlagCompletionFunc(flag,
		cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	if err != nil {
		panic(err) // the flag does not exist: wrong code
	}
}

// noInterspersed stops flag parsing at the first argument, so that flags of the
// command to run are its own.
func noInterspersed(f *pflag.FlagSet) { f.SetInterspersed(false) }
