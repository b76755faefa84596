package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"rota/api/client"
	rotav1 "rota/api/gen/rota/v1"
)

// runFlags are the flags of `rota run` about an action.
type runFlags struct {
	cores, maxCores       uint32
	keepCores             bool
	memory                size
	timeout, queueTimeout time.Duration
	retry                 uint32
	trajectory            uint64
	pool, name, dir       string
	known                 knownFlags
	env, quotas, settles  []string
	labels                []string
	http                  httpFlags
	detach                bool
	streams               streamFlags
	gpu                   gpuDemandFlags
	gang                  gangFlags
}

func (a *app) runCmd() *cobra.Command {
	var f runFlags
	cmd := &cobra.Command{
		Use: "run [flags] -- COMMAND [ARG...]", Short: "Run a command or an HTTP call as an action, and show its output",
		Long: `Submits the command as an action, waits until it runs, and passes on its output and its
exit code. In arguments, {{cores}} and {{gpus}} become the granted numbers. In arguments,
variables and the URL, {{engine}} becomes the address of the engine of --model, such as
http://127.0.0.1:40100; see: rota engine register --help. If a server dies meanwhile, rota
asks the next server with the same request ID, and nothing is lost.

Ctrl-C cancels the action. So does a terminal that is closed, and output that cannot be
written.

With --stdin, the command reads the standard input of rota, and Ctrl-C, TERM, HUP and QUIT
go to the command; the fourth Ctrl-C cancels the action. With --tty, the command has a
terminal. With both, all keys go to it, Ctrl-C too, and Ctrl-P Ctrl-Q leaves it running.

With --gang several copies of the command start at once, on one or more nodes, or none
does. Each line of their output begins with the rank of the copy. If one fails or its
node is lost, the others are ended.

With --url the action is an HTTP call, and its node makes the call. The body of the
answer becomes the standard output, and the status the standard error. The exit code is

   0  if the status is accepted
   7  if no connection could be made
  22  if the status is not accepted
  56  if the answer is incomplete

` + runExitCodesHelp,
		Example: `  rota run -- go test strings
  rota run --cores 1 --max-cores 8 --memory 2GiB --timeout 10m -- go test -p {{cores}} ./...
  rota run --class suite --max-cores 8 -- go test -p {{cores}} ./...
  rota run --allowed-cores 1,2,4,8 --expect 30s --serial 0.1 -- make -j{{cores}}
  rota run --quota openai --cores 0 --url https://api.example.com/judge --data @question.json
  rota run --quota tokens=2000 --settle tokens=usage --cores 0 --url https://api.example.com/v1/chat/completions --data @question.json
  rota run --cores 0 --quota engine --method POST --url 'http://10.0.0.7:8000/wake_up?tags=weights'
  rota run --gpus 1,2,4 --model reward-7 --gpu-memory 20GiB --setup 5s -- ./judge --tp {{gpus}}
  rota run --gpus 1 --model judge-7b --url '{{engine}}/v1/completions' --data @question.json
  rota run --gang 4 --gpus 8 -- ./train.sh
  rota run --gang 2 --gang-spread node --cores 4 -- ./worker
  rota run --detach -- make all
  rota run -i -t -- python3
  rota run -i -- sha256sum < model.bin`,
		Args: func(_ *cobra.Command, args []string) error {
			return f.checkWork(args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			spec, err := f.spec(args)
			if err != nil {
				return err
			}
			return a.runSpec(cmd.Context(), spec, &f)
		},
	}
	f.addTo(cmd)
	return cmd
}

func (f *runFlags) addTo(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.Uint32Var(&f.cores, "cores", 1, "minimum number of exclusive cores; 0 with --quota: the action shares the cores of the node")
	fs.Uint32Var(&f.maxCores, "max-cores", 0, "maximum number of cores that the action can use (default: the same as --cores)")
	fs.BoolVar(&f.keepCores, "keep-cores", false, "keep the cores that the action starts with; otherwise a node that can do that gives it more or fewer while it runs, never fewer than the minimum")
	fs.Var(&f.memory, "memory", "memory limit, such as 512MiB; 0: the limit of the trajectory, or none")
	fs.DurationVar(&f.timeout, "timeout", 0, "time limit for the run, such as 30s; 0: no limit")
	fs.DurationVar(&f.queueTimeout, "queue-timeout", 0, "time limit for the wait in the queue; 0: no limit")
	fs.Uint32Var(&f.retry, "retry", 0, "run the action again if its node is lost, up to this many attempts in total; 0: at most once")
	fs.Uint64Var(&f.trajectory, "trajectory", 0, "trajectory of the action")
	fs.StringVar(&f.pool, "pool", "", `pool of nodes (default "default")`)
	fs.StringVar(&f.name, "name", "", "free text for humans")
	fs.StringArrayVar(&f.labels, "label", nil, "label to find the action by, KEY=VALUE; repeat the flag for more labels")
	fs.StringVar(&f.dir, "dir", "", "working directory: an absolute path that exists on the node, or a path below the directory of the trajectory, or without one below a fresh directory (default: that directory)")
	fs.StringArrayVar(&f.quotas, "quota", nil, "quota that the action needs, NAME or NAME=UNITS; repeat the flag for more quotas")
	fs.StringArrayVar(&f.settles, "settle", nil, "where the answer to --url says what the call really used of a quota with a window: NAME=usage (OpenAI, Anthropic) or NAME=PATH, such as tokens=usage.total_tokens or cents=usage.cost*100; repeat the flag for more quotas")
	fs.StringArrayVarP(&f.env, "env", "e", nil, "environment variable of the command, NAME=VALUE; repeat the flag for more variables")
	fs.BoolVarP(&f.detach, "detach", "d", false, "print the action's ID and return at once")
	f.streams.addTo(fs)
	f.http.addTo(fs)
	f.known.addTo(fs)
	f.gpu.addTo(fs)
	f.gang.addTo(fs)
	noInterspersed(fs)
}

// spec turns the flags into an action.
func (f *runFlags) spec(argv []string) (*rotav1.ActionSpec, error) {
	if f.maxCores != 0 && f.maxCores < f.cores {
		return nil, usageErrorf("--max-cores %d is less than --cores %d", f.maxCores, f.cores)
	}
	if len(f.known.allowed) > 0 && (f.cores != 1 || f.maxCores != 0) {
		return nil, usageErrorf("--allowed-cores replaces --cores and --max-cores; leave out both")
	}
	quotas, err := parseQuotas(f.quotas)
	if err == nil {
		err = settleQuotas(quotas, f.settles, f.http.used())
	}
	if err != nil {
		return nil, err
	}
	spec := &rotav1.ActionSpec{
		Name: f.name, Pool: f.pool, TrajectoryId: f.trajectory,
		Resources: &rotav1.Resources{Cores: &f.cores, MaxCores: f.maxCores, MemoryBytes: uint64(f.memory), Quotas: quotas},
	}
	if f.keepCores {
		spec.Resources.Resizable = proto.Bool(false)
	}
	if spec.Labels, err = parseLabels(f.labels); err != nil {
		return nil, err
	}
	if err := f.work(spec, argv); err != nil {
		return nil, err
	}
	if err := f.gpu.apply(spec.Resources); err != nil {
		return nil, err
	}
	if err := f.known.tell(spec); err != nil {
		return nil, err
	}
	if f.timeout > 0 {
		spec.RunTimeout = durationpb.New(f.timeout)
	}
	if f.queueTimeout > 0 {
		spec.QueueTimeout = durationpb.New(f.queueTimeout)
	}
	if f.retry > 0 {
		spec.LossPolicy, spec.MaxAttempts = rotav1.LossPolicy_LOSS_POLICY_RETRY, f.retry
	}
	return spec, nil
}

// work sets the command or the HTTP call of the action.
func (f *runFlags) work(spec *rotav1.ActionSpec, argv []string) (err error) {
	if f.http.used() {
		spec.Http, err = f.http.call()
		return err
	}
	env, err := parseEnv(f.env)
	spec.Command = &rotav1.Command{Argv: argv, Env: env, Dir: f.dir}
	return err
}

// parseEnv reads NAME=VALUE.
func parseEnv(texts []string) (map[string]string, error) {
	env := make(map[string]string, len(texts))
	for _, kv := range texts {
		name, value, ok := strings.Cut(kv, "=")
		if !ok || name == "" {
			return nil, usageErrorf("--env %q is not NAME=VALUE", kv)
		}
		env[name] = value
	}
	return env, nil
}

func (a *app) submitDetached(ctx context.Context, specs []*rotav1.ActionSpec) error {
	c, err := a.dial()
	if err != nil {
		return runFailed(err)
	}
	ids, err := c.Submit(ctx, specs...)
	if err != nil {
		return a.submitFailed(ctx, err)
	}
	lines := strings.ReplaceAll(strings.Trim(fmt.Sprint(ids), "[]"), " ", "\n")
	if err := a.printLine(&rotav1.SubmitActionsResponse{Ids: ids}, lines); err != nil {
		return runFailed(err)
	}
	return nil
}

// submitFailed says why actions have no IDs.
func (a *app) submitFailed(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return a.cancelRun(nil, nil, errInterrupted)
	}
	return runFailed(err)
}

// runAction follows an action to its end and turns the end into an exit code.
func (a *app) runAction(ctx context.Context, spec *rotav1.ActionSpec) error {
	c, err := a.dial()
	if err != nil {
		return runFailed(err)
	}
	following, end := context.WithCancelCause(ctx)
	defer end(nil)
	sink := a.newSink(following, end)
	defer a.tellWaiting(ctx, func(ctx context.Context) string { return actionWaitsFor(ctx, c, sink.queued.Load()) })()
	action, err := c.Run(following, spec, sink.update)
	switch {
	case err == nil && sink.err != nil:
		return runFailed(sink.err)
	case err == nil:
		return a.runEnd(action)
	case ctx.Err() != nil:
		return a.cancelRun(c, sink.action, errInterrupted)
	case sink.err != nil:
		return a.cancelRun(c, sink.action, &codeError{exitRota, sink.err})
	}
	return runFailed(err)
}

// errInterrupted is why most runs end before their actions do.
var errInterrupted = &codeError{exitInterrupted, errors.New("interrupted")}

// cancelPatience is how long a run that ends early waits for its cancel to be
// committed.
const cancelPatience = 5 * time.Second

// cancelRun cancels the action of a run that ends before the action does. Its error says why, and what
// became of the action.
func (a *app) cancelRun(c *client.Client, last *rotav1.Action, why *codeError) error {
	if last == nil {
		return &codeError{why.code, fmt.Errorf(
			"%w before a server confirmed the action; the action may still run\nLook for it with: rota action list", why.err)}
	}
	if client.Final(last.State) {
		return a.runEnd(last)
	}
	ctx, cancel := context.WithTimeout(context.Background(), cancelPatience)
	defer cancel()
	if _, err := c.Cancel(ctx, last.Id); err != nil {
		return &codeError{why.code, fmt.Errorf(
			"%w, but action %d could not be canceled: %s\nTry: rota action cancel %d",
			why.err, last.Id, describe(err, a.settings.addr), last.Id)}
	}
	return &codeError{why.code, fmt.Errorf("%w: canceled action %d", why.err, last.Id)}
}

// runEnd is the exit of `rota run` for an action that has ended.
func (a *app) runEnd(act *rotav1.Action) error {
	r := act.GetResult()
	failed := func(code int) error {
		return &codeError{code, fmt.Errorf("action %d: %s: %s", act.Id, enumWord(act.State, statePrefix), resultText(act))}
	}
	switch r.GetReason() {
	case rotav1.EndReason_END_REASON_EXITED:
		switch {
		case r.ExitCode == 0:
			return nil
		case r.Message != "": // it did not fail by itself
			return failed(int(r.ExitCode))
		}
		return &codeError{code: int(r.ExitCode)}
	case rotav1.EndReason_END_REASON_SIGNALED:
		return failed(exitSignal + int(r.Signal))
	case rotav1.EndReason_END_REASON_OUT_OF_MEMORY:
		return failed(exitSignal + 9)
	case rotav1.EndReason_END_REASON_TIMEOUT, rotav1.EndReason_END_REASON_QUEUE_TIMEOUT:
		return failed(exitTimeout)
	case rotav1.EndReason_END_REASON_START_FAILED:
		return failed(exitCannotStart)
	}
	return failed(exitRota)
}

// runFailed gives rota's own failures an exit code of their own, apart from
// the command's.
func runFailed(err error) error {
	switch exitCode(err) {
	case exitUsage, exitInterrupted:
		return err
	}
	return &codeError{exitRota, err}
}
