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

// spans are times that pass while nothing else changes.
var spans = regexp.MustCompile(`[0-9.]+ m?s\b`)

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
	return fmt.Sprintf("action %d %s", id, resp.Action.WaitingFor)
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
