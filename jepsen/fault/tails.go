package fault

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"

	"rota/api/backoff"
	"rota/api/client"
	rotav1 "rota/api/gen/rota/v1"
	"rota/jepsen/cluster"
	"rota/jepsen/history"
)

const (
	// tailsActions run at once on one node, and end together.
	tailsActions = 2000
	// tailBytes is what each of them writes to either stream: as much as a report holds.
	tailBytes = 4 << 10
	// tailsQuota lets them run without cores.
	tailsQuota = "tails"
	// tailsStart is how long they may take to start, and tailsReport how long their ends
	// may take to be known once the servers are back.
	tailsStart, tailsReport = 3 * time.Minute, 30 * time.Second
	// tailsHeard is what the agent has to hear of all the ends. If servers came back
	// before, it would report them as they come, few at a time.
	tailsHeard = 10 * time.Second
	// codes is how many exit codes there are, from 1 on.
	codes = 5
)

// tails are actions that wait behind a gate.
type tails struct {
	w     *World
	api   *client.Client
	agent *cluster.Member
	gate  string
	ids   []uint64
}

// fullTails has many actions with full output end on one node while no server can be
// reached, but not for as long as the lease: every one of them is to be reported.
func fullTails(ctx context.Context, w *World) (*Injection, error) {
	t := &tails{w: w, agent: pick(w.Rand, w.Cluster.Agents), gate: filepath.Join(cluster.SharedDir, "gate")}
	if err := unix.Mkfifo(t.gate, 0o644); err != nil {
		return nil, fmt.Errorf("make a gate: %w", err)
	}
	var err error
	if t.api, err = w.Cluster.Client(); err != nil {
		return nil, err
	}
	begin, cancel := context.WithTimeout(ctx, tailsStart)
	defer cancel()
	if err := errors.Join(os.Chmod(t.gate, 0o644), t.submit(begin)); err != nil {
		return nil, err
	}
	all := func() bool { return t.running() >= tailsActions }
	if !until(begin, tailsStart, all) {
		return nil, fmt.Errorf("only %d of %d actions have started in %v", t.running(), tailsActions, tailsStart)
	}
	inj := kill(w, w.Cluster.Servers...)
	t.open(ctx)
	ended := tailsActions - t.running()
	_ = backoff.Sleep(ctx, tailsHeard)
	back := inj.End
	inj.End = func(ctx context.Context) (string, error) {
		defer t.api.Close()
		how, err := back(ctx)
		if err = errors.Join(err, t.look(ctx), os.Remove(t.gate)); err != nil || ended < tailsActions {
			return "", err
		}
		return fmt.Sprintf("%d actions ended on %s while %s", ended, t.agent.Name, how), nil
	}
	return inj, nil
}

// submit submits all actions, which wait at the gate when they have written.
func (t *tails) submit(ctx context.Context) error {
	_, err := t.api.Quotas.CreateQuota(ctx, &rotav1.CreateQuotaRequest{Name: tailsQuota, Kind: rotav1.QuotaKind_QUOTA_KIND_CONCURRENCY, Limit: tailsActions, Keys: 1})
	if err != nil {
		return err
	}
	// A shell needs no other process for any of this.
	script := fmt.Sprintf("printf '%%%[1]ds' o; printf '%%%[1]ds' e >&2; read x < %[2]s; exit $((1 + ROTA_ACTION_ID %% %[3]d))", tailBytes, t.gate, codes)
	req := &rotav1.SubmitActionsRequest{}
	for range tailsActions {
		req.Actions = append(req.Actions, &rotav1.ActionSpec{
			Name: tailsQuota, Pool: t.w.Pool, Command: &rotav1.Command{Argv: []string{"sh", "-c", script}},
			Resources: &rotav1.Resources{Cores: proto.Uint32(0), Quotas: []*rotav1.QuotaDemand{{Quota: tailsQuota, Units: 1}}},
		})
	}
	resp, err := t.api.Actions.SubmitActions(ctx, req)
	t.ids = resp.GetIds()
	return err
}

// running is how many of them run. Their agents may run others, which are few.
func (t *tails) running() int { return len(t.agent.Waiting("ROTA_QUOTA_TAILS=")) }

// open opens the gate until all have gone through.
func (t *tails) open(ctx context.Context) {
	until(ctx, t.w.Config.Lease/2, func() bool {
		fd, err := unix.Open(t.gate, unix.O_WRONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		if err == nil {
			unix.Close(fd)
		}
		return errors.Is(err, syscall.ENXIO) && t.running() == 0
	})
}

// look reads how the actions ended, once they have or time is over, and records it.
func (t *tails) look(ctx context.Context) error {
	var all []*rotav1.Action
	var err error
	until(ctx, tailsReport, func() bool {
		all, err = t.list(ctx)
		return err == nil && !slices.ContainsFunc(all, func(a *rotav1.Action) bool { return !client.Final(a.State) })
	})
	if err != nil {
		return err
	}
	got := make(map[uint64]string)
	for _, a := range all {
		got[a.Id] = describeEnd(a.State, a.GetResult())
	}
	t.w.Record.Update(func(rec *history.Record) {
		for _, id := range t.ids {
			rec.Ends = append(rec.Ends, history.End{Action: id, Want: wanted(id), Got: got[id]})
		}
	})
	return nil
}

// list reads all of them.
func (t *tails) list(ctx context.Context) (all []*rotav1.Action, err error) {
	req := &rotav1.ListActionsRequest{PageSize: 1000}
	for {
		page, err := t.api.Actions.ListActions(ctx, req)
		if err != nil {
			return nil, err
		}
		for _, a := range page.Actions {
			if a.Spec.GetName() == tailsQuota {
				all = append(all, a)
			}
		}
		if req.PageToken = page.NextPageToken; req.PageToken == "" {
			return all, nil
		}
	}
}

// wanted is the end that an action must be told to have.
func wanted(id uint64) string {
	return describeEnd(rotav1.ActionState_ACTION_STATE_FAILED, &rotav1.ActionResult{
		Reason: rotav1.EndReason_END_REASON_EXITED, ExitCode: int32(1 + id%codes),
		StdoutTail: make([]byte, tailBytes/2), StderrTail: make([]byte, tailBytes/2),
	})
}

// describeEnd leaves out what differs from run to run. Both tails share the bytes of one.
func describeEnd(state rotav1.ActionState, r *rotav1.ActionResult) string {
	return fmt.Sprintf("%v, %v with exit code %d and %d bytes of output", state, r.GetReason(), r.GetExitCode(), len(r.GetStdoutTail())+len(r.GetStderrTail()))
}
