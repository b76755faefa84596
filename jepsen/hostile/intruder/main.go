// Command intruder means harm to a cluster: as a client, as an agent, or as the command
// of an action.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"
	"time"

	"rota/jepsen/hostile"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: intruder client|agent TARGET, or intruder command MODE")
		os.Exit(2)
	}
	role, what := os.Args[1], os.Args[2]
	if role == "command" {
		os.Exit(command(what))
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	var target hostile.Target
	err := json.Unmarshal([]byte(what), &target)
	var in *intruder
	if err == nil {
		in, err = newIntruder(target)
	}
	if err == nil {
		err = in.run(ctx, role)
	}
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(in.summary)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "intruder:", err)
		os.Exit(1)
	}
}

// intruder is a hostile client or agent.
type intruder struct {
	hostile.Target
	wire *wire

	mu      sync.Mutex
	summary hostile.Summary
}

// achievedMax bounds what is told.
const achievedMax = 20

func newIntruder(t hostile.Target) (*intruder, error) {
	w, err := newWire(t)
	return &intruder{Target: t, wire: w, summary: hostile.Summary{Tried: make(map[string]int)}}, err
}

// run does harm in every way of a role until ctx is done.
func (in *intruder) run(ctx context.Context, role string) error {
	var ways []func(context.Context)
	switch role {
	case "client":
		ways = []func(context.Context){in.throwBombs, in.sendNonsense, in.operate, in.starve, in.climb, in.runCommands}
	case "agent":
		ways = []func(context.Context){in.makePools, in.lie, in.throwReports, in.flood}
	default:
		return fmt.Errorf("there is no role %q", role)
	}
	var all sync.WaitGroup
	for _, way := range ways {
		all.Go(func() { way(ctx) })
	}
	all.Wait()
	return nil
}

// tried counts an attempt.
func (in *intruder) tried(kind string) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.summary.Tried[kind]++
}

// achieved notes what must not have been possible.
func (in *intruder) achieved(format string, args ...any) {
	in.mu.Lock()
	defer in.mu.Unlock()
	line := fmt.Sprintf(format, args...)
	if s := &in.summary; len(s.Achieved) < achievedMax && !slices.Contains(s.Achieved, line) {
		s.Achieved = append(s.Achieved, line)
	}
}

// every calls f at an interval until ctx is done.
func every(ctx context.Context, interval time.Duration, f func(n int)) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			f(n)
		}
	}
}
