package bench

import (
	"context"
	"fmt"
	"os/exec"
	"strconv"
	"time"

	"rota/api/client"
	rotav1 "rota/api/gen/rota/v1"
)

// RunOptions say how to run no-op commands.
type RunOptions struct {
	Cluster ClusterOptions
	// Samples of a single action, one at a time.
	Samples int
	// Submitters and Duration of the measurement of throughput.
	Submitters int
	Duration   time.Duration
	// OversubscribedCores is how many cores the agent of the second measurement
	// of throughput says that it has.
	OversubscribedCores int
}

// RunResult is what no-op commands cost end to end. Times are medians in
// milliseconds unless they say otherwise.
type RunResult struct {
	Samples int `json:"samples"`
	// BareMS is a fork, exec and wait of the same command without rota.
	BareMS float64 `json:"bare_ms"`
	// ActionMS is from submission to the knowledge that it ended, one at a time.
	ActionMS    float64 `json:"action_ms"`
	ActionP99MS float64 `json:"action_p99_ms"`
	ExecMS      float64 `json:"exec_ms"`
	// OverheadMS is ActionMS less BareMS.
	OverheadMS float64 `json:"overhead_ms"`
	// Throughput is with the cores of this machine, each held for its action from
	// the grant until its end is committed: few cores bound it by that time.
	Throughput Rate `json:"throughput"`
	// Oversubscribed is with more cores than there are, which nothing is pinned to,
	// so that it is the machine that bounds it.
	Oversubscribed Rate `json:"throughput_oversubscribed"`
}

// noop is the command that is run.
const noop = "/bin/true"

// Run measures a real cluster with a real agent.
func Run(ctx context.Context, o RunOptions) (*RunResult, error) {
	h, err := startCluster(ctx, o.Cluster, 1)
	if err != nil {
		return nil, err
	}
	defer h.stop()
	result := &RunResult{Samples: o.Samples}
	if err := h.measureOverhead(ctx, result); err != nil {
		return nil, err
	}
	if result.Throughput, err = h.noops(ctx, "no-op actions", o); err != nil {
		return nil, err
	}
	h.stop() // twice does no harm
	o.Cluster.AgentArgs = []string{"--cores", strconv.Itoa(o.OversubscribedCores), "--oversubscribe"}
	over, err := startCluster(ctx, o.Cluster, 1)
	if err != nil {
		return nil, err
	}
	defer over.stop()
	result.Oversubscribed, err = over.noops(ctx, fmt.Sprintf("no-op actions on %d oversubscribed cores", o.OversubscribedCores), o)
	return result, err
}

// noops keeps many actions under way.
func (h *held) noops(ctx context.Context, what string, o RunOptions) (Rate, error) {
	return load(ctx, what, o.Submitters, o.Duration, func(ctx context.Context, _ int) (int, error) {
		_, err := runNoop(ctx, h.api)
		return 1, err
	})
}

// measureOverhead takes turns between an action and a bare process, so that both
// see the same machine.
func (h *held) measureOverhead(ctx context.Context, r *RunResult) error {
	var bare, act, exe []time.Duration
	const unmeasured = 10
	for i := range r.Samples + unmeasured {
		began := time.Now()
		if err := exec.CommandContext(ctx, noop).Run(); err != nil {
			return err
		}
		bareTook := time.Since(began)
		began = time.Now()
		action, err := runNoop(ctx, h.api)
		if err != nil {
			return err
		}
		if actTook := time.Since(began); i >= unmeasured {
			bare, act = append(bare, bareTook), append(act, actTook)
			exe = append(exe, action.Result.ExecDuration.AsDuration())
		}
	}
	r.BareMS, _, _ = quantiles(bare)
	r.ActionMS, r.ActionP99MS, _ = quantiles(act)
	r.ExecMS, _, _ = quantiles(exe)
	r.OverheadMS = r.ActionMS - r.BareMS
	return nil
}

// runNoop runs an action that does nothing.
func runNoop(ctx context.Context, api *client.Client) (*rotav1.Action, error) {
	return runAction(ctx, api, &rotav1.ActionSpec{Command: &rotav1.Command{Argv: []string{noop}}})
}

// runAction runs one action to its end, which is to be success.
func runAction(ctx context.Context, api *client.Client, spec *rotav1.ActionSpec) (*rotav1.Action, error) {
	ids, err := api.Submit(ctx, spec)
	if err != nil {
		return nil, err
	}
	action, err := api.Wait(ctx, ids[0])
	if err != nil {
		return nil, err
	}
	if action.State != rotav1.ActionState_ACTION_STATE_SUCCEEDED {
		return nil, fmt.Errorf("action %d: %v: %v", action.Id, action.State, action.Result)
	}
	return action, nil
}
