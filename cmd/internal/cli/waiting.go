package cli

import (
	"context"
	"fmt"
	"regexp"
	"sync"
	"time"

	"rota/api/backoff"
	"rota/api/client"
	rotav1 "rota/api/gen/rota/v1"
)

const (
	// waitSilence is how long a command waits before it gives the reason.
	waitSilence = 2 * time.Second
	// waitPoll is how often the command checks whether the reason has changed.
	waitPoll = time.Second
)

// tellWaiting prints the reason of a wait on a terminal: first when the wait has lasted for
// a while, and again when the reason changes. ask returns the reason, empty without a wait.
// tellWaiting returns a function that ends it.
func (a *app) tellWaiting(ctx context.Context, ask func(context.Context) string) (stop func()) {
	if !isTerminal(a.err) {
		return func() {}
	}
	return a.tellChanges(ctx, waitSilence, waitPoll, ask)
}

func (a *app) tellChanges(ctx context.Context, silence, poll time.Duration, ask func(context.Context) string) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var telling sync.WaitGroup
	telling.Go(func() {
		last := ""
		for pause := silence; ; pause = poll {
			if backoff.Sleep(ctx, pause) != nil {
				return
			}
			text := ask(ctx)
			if now := withoutTimes(text); text != "" && now != last && ctx.Err() == nil {
				last = now
				a.say("%s", text)
			}
		}
	})
	return func() {
		cancel()
		telling.Wait()
	}
}

// estimateText says when an action starts, as "in about 3 s (probably within 8 s)"; empty if
// that is not known.
func estimateText(e *rotav1.StartEstimate) string {
	if e.GetP50() == nil || e.GetP90() == nil {
		return ""
	}
	p50, p90 := e.P50.AsDuration(), e.P90.AsDuration()
	switch {
	case p90 == 0:
		return "at once"
	case p50 == p90:
		return "in about " + roughly(p50)
	case p50 == 0:
		return "at once (probably within " + roughly(p90) + ")"
	}
	return "in about " + roughly(p50) + " (probably within " + roughly(p90) + ")"
}

// roughly writes a duration with two digits or three: nobody knows it better.
func roughly(d time.Duration) string {
	switch {
	case d < time.Second:
		return fmt.Sprintf("%d ms", max(1, d.Milliseconds()))
	case d < 10*time.Second:
		return fmt.Sprintf("%.1f s", d.Seconds())
	case d < 5*time.Minute:
		return fmt.Sprintf("%.0f s", d.Seconds())
	case d < 5*time.Hour:
		return fmt.Sprintf("%.0f min", d.Minutes())
	}
	return fmt.Sprintf("%.0f h", d.Hours())
}

// spans are times that pass while nothing else changes.
var spans = regexp.MustCompile(`[0-9.]+ (ms|s|min|h)\b`)

func withoutTimes(text string) string { return spans.ReplaceAllString(text, "") }

// actionWaitsFor says what a queued action waits for. The text is empty if the action does
// not wait, or if no server answers.
func actionWaitsFor(ctx context.Context, c *client.Client, id uint64) string {
	if id == 0 {
		return ""
	}
	resp, err := c.Actions.GetAction(ctx, &rotav1.GetActionRequest{Id: id, AllowStale: true})
	if err != nil || resp.Action.GetWaitingFor() == "" {
		return ""
	}
	text := fmt.Sprintf("action %d %s", id, resp.Action.WaitingFor)
	if start := estimateText(resp.Action.Estimate); start != "" {
		text += "; would start " + start
	}
	return text
}

// turnWaitsFor is the same for a turn.
func turnWaitsFor(ctx context.Context, c *client.Client, id uint64) string {
	if id == 0 {
		return ""
	}
	resp, err := c.Turns.GetTurn(ctx, &rotav1.GetTurnRequest{TurnId: id, AllowStale: true})
	if err != nil || resp.Turn.GetWaitingFor() == "" {
		return ""
	}
	return fmt.Sprintf("turn %d %s", id, resp.Turn.WaitingFor)
}
