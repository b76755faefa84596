package simulated

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"rota/internal/engine/model"
)

// Command is the first argument of a test binary that is to run Main.
const Command = "simulated-engine"

// Dialects are what it stands in for.
const (
	VLLM   = "vllm"
	SGLang = "sglang"
	OpenAI = "openai"
)

// Preemptions are what Options.Preemption may be, in the order of model.Preemption.
var Preemptions = []string{"memory", "keep", "recompute"}

// Profiles are the names of profiles.
func Profiles() (names []string) {
	for _, p := range model.Profiles() {
		names = append(names, p.Name)
	}
	return names
}

// ErrUsage means that options make no sense.
var ErrUsage = errors.New("simulated engine")

// Options say what a simulated engine is.
type Options struct {
	// Listen is the address to listen on.
	Listen string
	// Model is the name of the model that it pretends to serve. Dialect is one of the constants.
	Model, Dialect string
	// Profile is the name of one of model.Profiles. Step, if it is not negative, replaces it: each
	// step takes that long, and nothing else takes time.
	Profile string
	Step    time.Duration
	// Speed is how fast time passes for the model.
	Speed float64
	// Slots, KVTokens and ChunkTokens are as in model.Config. Preemption is memory, keep or
	// recompute. ContextTokens bounds prompt and answer; 0: by KVTokens.
	Slots                                int
	KVTokens, ChunkTokens, ContextTokens int64
	Preemption                           string
	// Tokens is the mean length of answers that nothing else bounds.
	Tokens int64
	Seed   uint64
	// Load is how long it loads weights at the start, in real time. Wake and Update replace those
	// of the profile if they are not negative, in simulated time.
	Load, Wake, Update time.Duration
	// Weights is a file that keeps the version of the weights, as a checkpoint would: a process that
	// is started again has it; empty: a process begins with the version "default".
	Weights string
	// WeightsBackup keeps the weights of an engine of SGLang that gives their memory back. Without it
	// they are lost, until they are updated.
	WeightsBackup bool
	// Account is a folder with the account of simulated GPUs; empty: no memory is counted. Memory
	// and Capacity are bytes of each GPU. Devices are the numbers of its GPUs, with commas.
	Account          string
	Memory, Capacity uint64
	Devices          string
	// Misbehave is what it does wrong, with commas.
	Misbehave string
}

// AddTo adds the flags of the options, with their defaults.
func (o *Options) AddTo(fs *pflag.FlagSet) {
	fs.StringVar(&o.Listen, "listen", "127.0.0.1:0", "address to listen on; port 0: any free one")
	fs.StringVar(&o.Model, "model", "simulated", "name of the model that it pretends to serve")
	fs.StringVar(&o.Dialect, "dialect", VLLM, "what it stands in for: vllm, sglang or openai")
	fs.StringVar(&o.Profile, "profile", "qwen3-8b-h800-tp1", "model, hardware and degree of parallelism whose times it takes")
	fs.DurationVar(&o.Step, "step", -1, "time of each step, in place of a profile; nothing else takes time then")
	fs.Float64Var(&o.Speed, "speed", 1, "how many times faster than real time it is")
	fs.IntVar(&o.Slots, "slots", 256, "requests that run at once at most")
	fs.Int64Var(&o.KVTokens, "kv-tokens", 0, "tokens that the KV cache holds; 0: as in the profile")
	fs.Int64Var(&o.ChunkTokens, "chunk-tokens", model.DefaultChunkTokens, "tokens of prompts that a step computes at most")
	fs.Int64Var(&o.ContextTokens, "context-tokens", 0, "tokens that a prompt and its answer may have; 0: as many as the KV cache holds")
	fs.StringVar(&o.Preemption, "preemption", "memory", "when a request is preempted: memory (only if the KV cache is full), keep or recompute (also for a higher priority, with or without its prefix)")
	fs.Int64Var(&o.Tokens, "tokens", 256, "mean length of answers that nothing else bounds")
	fs.Uint64Var(&o.Seed, "seed", 1, "seed of all text")
	fs.DurationVar(&o.Load, "load", 0, "real time to load the weights at the start")
	fs.DurationVar(&o.Wake, "wake", -1, "simulated time to wake; without it as in the profile")
	fs.DurationVar(&o.Update, "update", -1, "simulated time to update the weights; without it as in the profile")
	fs.StringVar(&o.Weights, "weights", "", "file that keeps the version of the weights for a process that is started again; none: it has the first one again")
	fs.BoolVar(&o.WeightsBackup, "enable-weights-cpu-backup", false, "sglang: keep the weights while their memory is given back; without it they are lost")
	fs.StringVar(&o.Account, "account", "", "folder with the account of the simulated GPUs; none: no memory is counted")
	fs.Uint64Var(&o.Memory, "memory", 0, "bytes that it takes of each GPU")
	fs.Uint64Var(&o.Capacity, "capacity", 0, "bytes that each GPU has")
	fs.StringVar(&o.Devices, "devices", "", "numbers of its GPUs, with commas")
	fs.StringVar(&o.Misbehave, "misbehave", "", "what it does wrong, with commas: "+strings.Join(misbehaviours, ", "))
	for _, name := range []string{"step", "wake", "update"} {
		fs.Lookup(name).DefValue = "0s" // the default is not to be shown
	}
}

// Main runs a simulated engine until the context ends, and returns an exit code.
func Main(ctx context.Context, args []string, stderr io.Writer) int {
	return MainWith(ctx, args, stderr, nil)
}

// MainWith is Main for an engine that takes its memory from somewhere else than the account
// that --account names; nil: from there.
func MainWith(ctx context.Context, args []string, stderr io.Writer, memory Memory) int {
	var o Options
	fs := pflag.NewFlagSet(Command, pflag.ContinueOnError)
	fs.SetOutput(stderr)
	o.AddTo(fs)
	if err := fs.Parse(args); err != nil {
		fmt.Fprintf(stderr, "simulated engine: %v\n", err)
		return 2
	}
	code, err := Run(ctx, o, memory, func(net.Addr) {})
	if err != nil {
		fmt.Fprintf(stderr, "%v\n", err)
	}
	return code
}

// configuration is the model that the options describe.
func (o *Options) configuration() (model.Config, error) {
	p, err := model.Find(o.Profile)
	if o.Step >= 0 {
		p, err = &model.Profile{
			Name: "every step takes " + o.Step.String(), Batch: []model.Point{{Batch: 1, StepPS: max(o.Step.Nanoseconds()*1000, 1)}}, KVTokens: 10_000_000,
		}, nil
	}
	if err != nil {
		return model.Config{}, fmt.Errorf("--profile: %w", err)
	}
	if o.Wake >= 0 {
		p.WakeNS = o.Wake.Nanoseconds()
	}
	if o.Update >= 0 {
		p.UpdateNS = o.Update.Nanoseconds()
	}
	preemption := slices.Index(Preemptions, o.Preemption)
	if preemption < 0 {
		return model.Config{}, fmt.Errorf("%w: --preemption is %q; use one of %s", ErrUsage, o.Preemption, strings.Join(Preemptions, ", "))
	}
	return model.Config{
		Profile: p, Slots: o.Slots, KVTokens: o.KVTokens, ChunkTokens: o.ChunkTokens, Preemption: model.Preemption(preemption),
	}, nil
}

// check says what is wrong with the options that nothing else checks.
func (o *Options) check() error {
	switch {
	case !slices.Contains([]string{VLLM, SGLang, OpenAI}, o.Dialect):
		return fmt.Errorf("%w: --dialect is %q; use vllm, sglang or openai", ErrUsage, o.Dialect)
	case o.Speed <= 0 || o.Speed > 1e6:
		return fmt.Errorf("%w: --speed is %v; use more than 0 and at most 1,000,000", ErrUsage, o.Speed)
	case o.Step > 100*time.Second:
		return fmt.Errorf("%w: --step is %v; use at most 100 s", ErrUsage, o.Step)
	case o.Tokens < 1:
		return fmt.Errorf("%w: --tokens is %d; use at least 1", ErrUsage, o.Tokens)
	case o.ContextTokens < 0 || o.ContextTokens == 1:
		return fmt.Errorf("%w: --context-tokens is %d; use 0 or at least 2", ErrUsage, o.ContextTokens)
	case o.Model == "":
		return fmt.Errorf("%w: --model is empty; name the model", ErrUsage)
	}
	return nil
}

func devices(text string) (gpus []int, err error) {
	for _, field := range strings.FieldsFunc(text, func(r rune) bool { return r == ',' }) {
		gpu, err := strconv.Atoi(field)
		if err != nil {
			return nil, fmt.Errorf("%w: --devices is %q; use numbers with commas", ErrUsage, text)
		}
		gpus = append(gpus, gpu)
	}
	return gpus, nil
}
