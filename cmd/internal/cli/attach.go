package cli

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/timestamppb"

	"rota/api/client"
	rotav1 "rota/api/gen/rota/v1"
	"rota/api/signals"
)

func (a *app) execCmd() *cobra.Command {
	var f runFlags
	cmd := &cobra.Command{
		Use: "exec [flags] TRAJECTORY -- COMMAND [ARG...]", Short: "Run a command in a trajectory, with a terminal if asked",
		Long: `Runs the command as an action of the trajectory, on its node and in its directory. It is the
same as "rota run --trajectory": the command waits for its cores as every action does.

` + runExitCodesHelp,
		Example: "  rota exec -i -t 7 -- bash\n  rota exec 7 -- git status\n  tar c src | rota exec -i 7 -- tar x",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) < 2 {
				return usageErrorf("usage: %s TRAJECTORY -- COMMAND [ARG...]", cmd.CommandPath())
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := parseID(args[0])
			if err != nil {
				return err
			}
			argv := args[1:]
			if argv[0] == "--" { // the flags ended before it
				argv = argv[1:]
			}
			if f.trajectory = id; len(argv) == 0 {
				return usageErrorf("nothing to run; write: %s %d -- COMMAND [ARG...]", cmd.CommandPath(), id)
			}
			spec, err := f.spec(argv)
			if err != nil {
				return err
			}
			return a.runSpec(cmd.Context(), spec, &f)
		},
	}
	fs := cmd.Flags()
	fs.Uint32Var(&f.cores, "cores", 1, "minimum number of exclusive cores")
	fs.Uint32Var(&f.maxCores, "max-cores", 0, "maximum number of cores that the command can use (default: the same as --cores)")
	fs.DurationVar(&f.timeout, "timeout", 0, "time limit for the run, such as 30s; 0: no limit")
	fs.StringVar(&f.name, "name", "", "free text for humans")
	fs.StringVar(&f.dir, "dir", "", "working directory: an absolute path that exists on the node, or a path below the directory of the trajectory (default: that directory)")
	fs.StringArrayVarP(&f.env, "env", "e", nil, "environment variable of the command, NAME=VALUE; repeat the flag for more variables")
	fs.BoolVarP(&f.detach, "detach", "d", false, "print the action's ID and return at once")
	f.streams.addTo(fs)
	noInterspersed(fs)
	return cmd
}

// runSpec runs an action as the flags say.
func (a *app) runSpec(ctx context.Context, spec *rotav1.ActionSpec, f *runFlags) error {
	if err := f.gang.check(f.streams.used()); err != nil {
		return err
	}
	// With a handler, a write to a closed pipe is an error, and does not end this process before it
	// has canceled the action.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	switch {
	case f.detach:
		if err := f.streams.apply(spec); err != nil {
			return err
		}
		return a.submitDetached(ctx, f.gang.members(spec))
	case f.gang.size > 0:
		return a.runGang(ctx, f.gang.members(spec))
	case f.streams.used():
		return a.runInteractive(ctx, spec, f.streams)
	}
	return a.runAction(ctx, spec)
}

func (a *app) attachCmd() *cobra.Command {
	var (
		flags streamFlags
		tail  int
	)
	cmd := &cobra.Command{
		Use: "attach [flags] ID", Short: "Follow an action that runs, and type into it", Args: exactly("ID"),
		Long: `Prints the output of an action until it has ended, as "rota logs --follow" does, and exits
as "rota run" would have. With --stdin, it passes on standard input too, if the action was submitted with --stdin or --tty.
Several users may be attached to one action. The end of standard input closes that of the
action for all of them.

With --stdin or --tty, Ctrl-C goes to the action once it runs; with --stdin and --tty, Ctrl-P Ctrl-Q
detaches from it. With neither, while the action is queued, and at the fourth time, Ctrl-C ends this
command, and the action goes on.

` + runExitCodesHelp,
		Example: "  rota attach 42\n  rota attach -i -t 42\n  echo quit | rota attach -i 42",
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := parseID(args[0])
			if err != nil {
				return err
			}
			c, err := a.dial()
			if err != nil {
				return runFailed(err)
			}
			return a.attach(cmd.Context(), c, id, flags, tail)
		},
	}
	flags.addTo(cmd.Flags())
	cmd.Flags().IntVar(&tail, "tail", 10, "begin with this many of the last lines of each stream; -1: with all that the node keeps")
	return cmd
}

func (a *app) attach(ctx context.Context, c *client.Client, id uint64, flags streamFlags, tail int) error {
	act, err := c.Get(ctx, id)
	switch {
	case err != nil:
		return runFailed(err)
	case !flags.used():
		following, end := context.WithCancelCause(ctx)
		defer end(nil)
		sink := a.newSink(following, end)
		if act, err = a.followTail(following, c, id, tail, client.From{}, sink, sink.update); err != nil {
			return runFailed(err)
		}
		return a.runEnd(act)
	case client.Final(act.State):
		return runFailed(fmt.Errorf("action %d has ended: nothing can be typed into it\nRead its output with: rota logs %d", id, id))
	case flags.tty && act.Spec.GetTty() == nil:
		return usageErrorf("action %d has no terminal; leave out --tty", id)
	case act.Spec.GetTty() == nil && !act.Spec.GetStdin():
		return usageErrorf("action %d was submitted without --stdin and --tty: nothing can be typed into it", id)
	}
	v, err := a.converse(ctx, c, flags)
	if err != nil {
		return runFailed(err)
	}
	v.mu.Lock()
	v.action = act
	v.mu.Unlock()
	act, err = a.followTail(v.ctx, c, id, tail, client.From{}, v.sink, v.update)
	return v.result(act, err)
}

// followTail follows an action to its end, after the last lines that it has written.
func (a *app) followTail(ctx context.Context, c *client.Client, id uint64, tail int, from client.From, sink *outputSink, update client.Update) (*rotav1.Action, error) {
	act, err := a.followFromTail(ctx, c, id, tail, from, sink, update)
	if sink.err != nil {
		return nil, sink.err
	}
	return act, err
}

func (a *app) followFromTail(ctx context.Context, c *client.Client, id uint64, tail int, from client.From, sink *outputSink, update client.Update) (*rotav1.Action, error) {
	if tail < 0 {
		return c.FollowFrom(ctx, id, from, update)
	}
	act, err := c.Get(ctx, id)
	if err != nil {
		return nil, err
	}
	last := &lastLines{most: tail}
	if act.Attempt > 0 {
		req := &rotav1.ReadActionOutputRequest{ActionId: id, Attempt: act.Attempt, Times: from.Times}
		if !from.Since.IsZero() {
			req.Since = timestamppb.New(from.Since)
		}
		err := readOutput(ctx, c, req, last, nil)
		if err != nil && client.Detail(err).GetReason() != "OUTPUT_GONE" && client.Detail(err).GetReason() != "OUTPUT_NOT_FOUND" {
			return nil, err
		}
		last.print(sink)
	}
	from.Attempt = act.Attempt
	from.Stdout, from.Stderr = last.reached()
	return c.FollowFrom(ctx, id, from, update)
}

func (a *app) actionSignalCmd() *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use: "signal ID SIGNAL", Short: "Send a signal to an action that runs", Args: exactly("ID", "SIGNAL"),
		Long: `Sends a signal to the process group of the action's command: HUP, INT, QUIT, KILL, USR1, USR2,
ALRM, TERM, CONT, STOP, TSTP or WINCH, or its number. To end an action for sure, cancel it.`,
		Example: "  rota action signal 42 INT\n  rota action signal 42 USR1 --all",
		RunE: a.with(func(ctx context.Context, c *client.Client, args []string) error {
			id, err := parseID(args[0])
			if err != nil {
				return err
			}
			if _, err := signals.Parse(args[1]); err != nil {
				return usageErrorf("%w", err)
			}
			return c.Signal(ctx, id, args[1], all)
		}),
	}
	cmd.Flags().BoolVar(&all, "all", false, "send it to every process of the action, not only to the group of its command")
	return cmd
}
