package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"rota/agent/engine"
	"rota/api/client"
	rotav1 "rota/api/gen/rota/v1"
)

func (a *app) engineCmd() *cobra.Command {
	return group("engine", "Declare how models are served, and see their engines",
		a.engineRegisterCmd(), a.reads(a.engineListCmd()), a.reads(a.engineGetCmd()), a.engineRemoveCmd(), a.engineSimulateCmd())
}

// engineFlags are the flags of the declaration of an engine.
type engineFlags struct {
	model, driver, probe, dir string
	noProbe                   bool
	env                       []string
	sleepLevel                uint32
	sleep, wake               callFlags
	startTimeout, callTimeout time.Duration
	asleepMemory              size
}

// callFlags describe one call to an engine: "POST /path", and its body.
type callFlags struct{ call, data string }

func (a *app) engineRegisterCmd() *cobra.Command {
	var f engineFlags
	cmd := &cobra.Command{
		Use: "register --model MODEL --driver DRIVER [flags] -- COMMAND [ARG...]", Short: "Declare how a model is served, or change that",
		Long: `Declares the engine of a model. An engine is a process that serves the model on a chunk of
GPUs. Agents start the engine where an action needs the model, as with: rota run --gpus 1
--model MODEL. They put the engine to sleep, or stop it, where another model takes the
chunk. An engine that runs with an older declaration is replaced when no action uses it.

In arguments and variables, {{port}} becomes the port that the engine must listen on,
{{gpus}} the number of its GPUs, and {{devices}} their numbers. CUDA_VISIBLE_DEVICES and
ROTA_ENGINE_PORT are set.

The driver says how an engine sleeps and wakes:

  vllm     vLLM with sleep mode (--sleep-level); needs --enable-sleep-mode and
           VLLM_SERVER_DEV_MODE=1
  sglang   SGLang with --enable-memory-saver --enable-weights-cpu-backup
  process  any program: it is stopped to free its memory, and started again
  http     any server with two calls for it: --sleep and --wake`,
		Example: `  rota engine register --model judge-7b --driver vllm --env VLLM_SERVER_DEV_MODE=1 -- vllm serve judge-7b --port {{port}} --tensor-parallel-size {{gpus}} --enable-sleep-mode
  rota engine register --model rules --driver process --no-probe -- ./rules --port {{port}}
  rota engine register --model ranker --driver http --sleep 'POST /offload' --wake 'POST /load' -- ./ranker {{port}}`,
		Args: func(_ *cobra.Command, args []string) error { return f.check(args) },
		RunE: func(cmd *cobra.Command, args []string) error {
			spec, err := f.spec(args)
			if err != nil {
				return err
			}
			c, err := a.dial()
			if err != nil {
				return err
			}
			resp, err := call(cmd.Context(), a, c.Engines.RegisterEngine, &rotav1.RegisterEngineRequest{Engine: spec})
			if err != nil {
				return err
			}
			if resp.Unchanged {
				a.say("The engine of model %s was declared so already; nothing has changed.", f.model)
			}
			return a.printEngine(resp, resp.Engine)
		},
	}
	f.addTo(cmd)
	return cmd
}

func (f *engineFlags) addTo(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringVar(&f.model, "model", "", "model that the engine serves, as actions name it")
	fs.StringVar(&f.driver, "driver", "", "how the engine sleeps and wakes: vllm, sglang, process or http")
	fs.StringVar(&f.probe, "probe", "", `path that answers 200 once the engine can serve (default "/health")`)
	fs.BoolVar(&f.noProbe, "no-probe", false, "the engine is ready as soon as it is started; for the driver process")
	fs.Uint32Var(&f.sleepLevel, "sleep-level", 0, "vllm: 1 keeps the weights in host memory, 2 loads them again; 0 means 1")
	fs.StringVar(&f.sleep.call, "sleep", "", `http: call that frees the GPU memory, such as "POST /sleep"`)
	fs.StringVar(&f.sleep.data, "sleep-data", "", "body of the call, or @FILE to read the body from a file")
	fs.StringVar(&f.wake.call, "wake", "", `http: call that takes the GPU memory again, such as "POST /wake_up"`)
	fs.StringVar(&f.wake.data, "wake-data", "", "body of the call, or @FILE to read the body from a file")
	fs.DurationVar(&f.startTimeout, "start-timeout", 0, "longest time to become ready after a start; 0: 10 minutes")
	fs.DurationVar(&f.callTimeout, "call-timeout", 0, "longest time of a call to sleep or to wake; 0: 2 minutes")
	fs.Var(&f.asleepMemory, "asleep-memory", "host memory that the engine keeps while it sleeps, such as 20GiB; 0: unknown")
	fs.StringArrayVarP(&f.env, "env", "e", nil, "environment variable of the engine, NAME=VALUE; repeat the flag for more variables")
	fs.StringVar(&f.dir, "dir", "", "working directory: an absolute path that exists on the node (default: a folder of the engine)")
	words(cmd, "driver", "vllm", "sglang", "process", "http")
	noInterspersed(fs)
}

func (f *engineFlags) check(argv []string) error {
	_, known := f.driverOf()
	switch {
	case f.model == "":
		return usageErrorf("which model the engine serves is not given; give --model MODEL")
	case !known:
		return usageErrorf("--driver %q is not vllm, sglang, process or http", f.driver)
	case len(argv) == 0:
		return usageErrorf("the command that starts the engine is not given; write it after --")
	}
	return nil
}

func (f *engineFlags) driverOf() (rotav1.EngineDriver, bool) {
	n, known := rotav1.EngineDriver_value["ENGINE_DRIVER_"+strings.ToUpper(f.driver)]
	return rotav1.EngineDriver(n), known && n != 0
}

// spec turns the flags into a declaration.
func (f *engineFlags) spec(argv []string) (*rotav1.EngineSpec, error) {
	env, err := parseEnv(f.env)
	if err != nil {
		return nil, err
	}
	spec := &rotav1.EngineSpec{
		Model: f.model, Command: &rotav1.Command{Argv: argv, Env: env, Dir: f.dir}, ProbePath: f.probe, NoProbe: f.noProbe,
		SleepLevel: f.sleepLevel, AsleepMemoryBytes: uint64(f.asleepMemory),
	}
	spec.Driver, _ = f.driverOf()
	if spec.Driver == rotav1.EngineDriver_ENGINE_DRIVER_SGLANG && !engine.Sleeps(spec) {
		return nil, usageErrorf("SGLang without --enable-weights-cpu-backup loses its weights when it sleeps, and answers nonsense when it has woken; " +
			"add --enable-memory-saver --enable-weights-cpu-backup to the command, or stop the engine instead of putting it to sleep, with --driver process --probe /health")
	}
	if spec.Sleep, err = f.sleep.parse("--sleep"); err != nil {
		return nil, err
	}
	if spec.Wake, err = f.wake.parse("--wake"); err != nil {
		return nil, err
	}
	if f.startTimeout > 0 {
		spec.StartTimeout = durationpb.New(f.startTimeout)
	}
	if f.callTimeout > 0 {
		spec.CallTimeout = durationpb.New(f.callTimeout)
	}
	return spec, nil
}

// parse reads "POST /path"; nil if there is no call.
func (f *callFlags) parse(flag string) (*rotav1.EngineCall, error) {
	if f.call == "" {
		if f.data != "" {
			return nil, usageErrorf("%s-data is the body of a call; give the call with %s", flag, flag)
		}
		return nil, nil
	}
	method, path, ok := strings.Cut(f.call, " ")
	if !ok || !strings.HasPrefix(path, "/") {
		return nil, usageErrorf("%s %q is not METHOD /PATH, such as \"POST /sleep\"", flag, f.call)
	}
	body, err := readData(flag+"-data", f.data)
	return &rotav1.EngineCall{Method: method, Path: path, Body: body}, err
}

func (a *app) engineListCmd() *cobra.Command {
	return &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List engines and how many run", Args: exactly(),
		Example: "  rota engine list",
		RunE: a.with(func(ctx context.Context, c *client.Client, _ []string) error {
			resp, err := call(ctx, a, c.Engines.ListEngines, &rotav1.ListEnginesRequest{})
			if err != nil {
				return err
			}
			rows := make([][]string, 0, len(resp.Engines))
			for _, e := range resp.Engines {
				rows = append(rows, []string{e.Spec.GetModel(), driverText(e.Spec), optionalDuration(e.SetUp), instancesText(e.Instances)})
			}
			return a.print(resp, []string{"model", "driver", "set-up", "engines"}, rows)
		}),
	}
}

func (a *app) engineGetCmd() *cobra.Command {
	return &cobra.Command{
		Use: "get MODEL", Short: "Show how a model is served, and its engine on each node", Args: exactly("MODEL"),
		Example: "  rota engine get judge-7b",
		RunE: a.with(func(ctx context.Context, c *client.Client, args []string) error {
			resp, err := call(ctx, a, c.Engines.GetEngine, &rotav1.GetEngineRequest{Model: args[0]})
			if err != nil {
				return err
			}
			return a.printEngine(resp, resp.Engine)
		}),
	}
}

func (a *app) engineRemoveCmd() *cobra.Command {
	return &cobra.Command{
		Use: "remove MODEL", Aliases: []string{"rm"}, Short: "Forget how a model is served", Args: exactly("MODEL"),
		Long: `Forgets the engine of a model. Agents stop what runs of it when no action uses it. Actions
that name the model still run, and have to load the model themselves.`,
		Example: "  rota engine remove judge-7b",
		RunE: a.with(func(ctx context.Context, c *client.Client, args []string) error {
			resp, err := call(ctx, a, c.Engines.RemoveEngine, &rotav1.RemoveEngineRequest{Model: args[0]})
			if err != nil {
				return err
			}
			return a.printFields(resp, []field{{"removed", args[0]}})
		}),
	}
}

func (a *app) printEngine(resp proto.Message, e *rotav1.Engine) error {
	spec := e.GetSpec()
	fields := []field{
		{"model", spec.GetModel()}, {"driver", driverText(spec)}, {"command", strings.Join(spec.GetCommand().GetArgv(), " ")},
		{"generation", fmt.Sprint(e.GetGeneration())}, {"set-up", measuredText(e)},
	}
	for _, i := range e.GetInstances() {
		fields = append(fields, field{fmt.Sprintf("on %s, GPUs %s", i.Node, gpuRange(i.Chunk)), instanceText(e, i)})
	}
	return a.printFields(resp, fields)
}

func driverText(s *rotav1.EngineSpec) string { return enumWord(s.GetDriver(), "ENGINE_DRIVER_") }

// engineStateText is "falling asleep".
func engineStateText(s rotav1.EngineState) string {
	return strings.ReplaceAll(enumWord(s, "ENGINE_STATE_"), "_", " ")
}

// measuredText is "8s, the mean of 3".
func measuredText(e *rotav1.Engine) string {
	if e.GetSetUps() == 0 {
		return "not measured yet"
	}
	return fmt.Sprintf("%s, the mean of %d", optionalDuration(e.SetUp), e.SetUps)
}

// instanceText says "failed, 3 failures, 4 starts: exited with 1".
func instanceText(e *rotav1.Engine, i *rotav1.EngineInstance) string {
	text := engineStateText(i.State)
	if i.Generation != e.Generation {
		text += fmt.Sprintf(" with generation %d", i.Generation)
	}
	for _, n := range []struct {
		count uint64
		noun  string
	}{{i.Failures, "failure"}, {i.Starts, "start"}, {i.Sleeps, "sleep"}, {i.Wakes, "wake"}} {
		if n.count > 0 {
			text += ", " + plural(int(n.count), n.noun)
		}
	}
	if i.Message != "" {
		text += ": " + i.Message
	}
	return text
}

// instancesText says "2 ready, 1 asleep".
func instancesText(all []*rotav1.EngineInstance) string {
	counts := map[rotav1.EngineState]int{}
	for _, i := range all {
		counts[i.State]++
	}
	var parts []string
	for s := rotav1.EngineState_ENGINE_STATE_WAITING; s <= rotav1.EngineState_ENGINE_STATE_FAILED; s++ {
		if counts[s] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", counts[s], engineStateText(s)))
		}
	}
	return strings.Join(parts, ", ")
}
