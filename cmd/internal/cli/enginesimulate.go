package cli

import (
	"context"
	"fmt"
	"net"

	"github.com/spf13/cobra"

	simulatedengine "rota/internal/engine/simulated"
)

// engineSimulateCmd is an engine for trials, tests and benchmarks.
func (a *app) engineSimulateCmd() *cobra.Command {
	var o simulatedengine.Options
	cmd := &cobra.Command{
		Use: "simulate", Short: "Be a simulated engine, which stands in for vLLM or SGLang", Args: exactly(),
		Long: `Serves the HTTP interfaces of vLLM, of SGLang, or of OpenAI only, without a GPU and without
a model. The text that it generates is words that begin with "sim". It takes the time that
an engine would take: batches, prompts, a prefix cache, priorities, preemption, sleep and
updates of weights are modelled. A profile has the times of a model on some hardware.
These are estimates; docs/engines-simulated.md says from what.

A prompt may say how long its answer is to be, and which tool it calls, with
simulated:tokens=500 and simulated:tool=search. The flag --misbehave, and
POST /simulated/misbehave?what=..., have the engine go wrong as real ones do.

The address is printed once it listens. It ends with Ctrl-C.`,
		Example: `  rota engine simulate
  rota engine simulate --listen 127.0.0.1:8000 --model policy --dialect sglang --profile qwen3-14b-h800-tp2 --speed 10
  rota engine simulate --preemption keep --slots 64 --misbehave crash-tokens=100000`,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.engineSimulate(cmd.Context(), o) },
	}
	o.AddTo(cmd.Flags())
	words(cmd, "dialect", simulatedengine.VLLM, simulatedengine.SGLang, simulatedengine.OpenAI)
	words(cmd, "preemption", simulatedengine.Preemptions...)
	words(cmd, "profile", simulatedengine.Profiles()...)
	words(cmd, "misbehave", simulatedengine.Misbehaviours()...)
	return cmd
}

// simulatedReady is what `rota engine simulate -o json` prints once it listens.
type simulatedReady struct {
	Simulated bool   `json:"simulated"`
	URL       string `json:"url"`
	Model     string `json:"model"`
	Dialect   string `json:"dialect"`
}

func (a *app) engineSimulate(ctx context.Context, o simulatedengine.Options) error {
	var printed error
	code, err := simulatedengine.Run(ctx, o, nil, func(addr net.Addr) {
		ready := simulatedReady{Simulated: true, URL: "http://" + addr.String(), Model: o.Model, Dialect: o.Dialect}
		if a.json() {
			printed = writeJSON(a.out, ready)
		} else {
			_, printed = fmt.Fprintf(a.out, "A simulated engine serves model %s at %s, as %s does. Stop it with Ctrl-C.\n", o.Model, ready.URL, o.Dialect)
		}
	})
	if code != 0 {
		return &codeError{code: code, err: err}
	}
	return printed
}
