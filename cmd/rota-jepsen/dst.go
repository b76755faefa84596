package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"rota/jepsen/dst"
)

// dstFlags are what a simulation can be told.
type dstFlags struct {
	seed, seeds, from uint64
	hours             float64
	parallel          int
	scenario          string
	output            string
	shrink            time.Duration
	checkEvery        uint64
	story             bool
	untilViolation    bool
}

// dstScenarios are the kinds of plans.
var dstScenarios = map[string]dst.Scenario{"random": dst.Random, "partitions": dst.Partitions}

// A world holds some ten MiB, so it is collected seldom; but all together never
// take more than heapBytesMax because of that.
const (
	heapGrowth   = 1600 // percent
	heapBytesMax = 1 << 30
)

// progressEvery is after how many seeds a long campaign says how far it is.
const progressEvery = 25

func newDST() *cobra.Command {
	var f dstFlags
	cmd := &cobra.Command{
		Use: "dst", Short: "Simulate clusters from seeds, much faster than time passes",
		Long: `Simulates clusters from seeds: the real state machine on three or five replicas, the
real rules of entries, majorities and leases, agents that follow the real protocol,
clients, and faults of all of them, in virtual time and on one core. After every entry a
reference model has to agree and the invariants of the state have to hold; a witness sees
what is executed. A seed that fails is made as small as possible and told line by line; it
fails again whenever it is run.

hashicorp/raft, disks and sockets are not part of it: see "rota-jepsen run".

` + exitCodesHelp,
		Example: `  rota-jepsen dst --seeds 100
  rota-jepsen dst --seeds 10000 --from 1000 --parallel 2 -o json
  rota-jepsen dst --seed 42 --story
  rota-jepsen dst --scenario partitions --seeds 80`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	fs := cmd.Flags()
	fs.Uint64Var(&f.seed, "seed", 0, "simulate this seed alone")
	fs.Uint64Var(&f.seeds, "seeds", 100, "how many seeds to simulate")
	fs.Uint64Var(&f.from, "from", 1, "the first seed")
	fs.Float64Var(&f.hours, "hours", 1, "simulated hours with faults, for each seed")
	fs.IntVar(&f.parallel, "parallel", runtime.NumCPU(), "how many seeds to simulate at the same time")
	fs.StringVar(&f.scenario, "scenario", "random", "random: everything at once; partitions: nodes are cut off for longer than their lease")
	fs.DurationVar(&f.shrink, "shrink", time.Minute, "how long to look for a smaller plan that fails too")
	fs.Uint64Var(&f.checkEvery, "check-every", 16, "compute indexes and hashes again after this number of entries (rows are checked after every one)")
	fs.BoolVar(&f.untilViolation, "until-violation", false, "begin no seed any more once one has failed")
	fs.BoolVar(&f.story, "story", false, "tell what happens in a single seed even if it does not fail")
	fs.StringVarP(&f.output, "output", "o", "text", "text, or json: ends with one line of JSON")
	return cmd
}

func (f *dstFlags) run(cmd *cobra.Command) error {
	plan, ok := dstScenarios[f.scenario]
	switch {
	case !ok:
		return &codeError{exitUsage, fmt.Errorf("there is no scenario %q; choose one of %s", f.scenario,
			strings.Join(slices.Sorted(maps.Keys(dstScenarios)), ", "))}
	case f.output != "text" && f.output != "json":
		return &codeError{exitUsage, fmt.Errorf("output %q is neither text nor json", f.output)}
	case f.hours <= 0 || f.seeds == 0 || f.parallel <= 0 || f.checkEvery == 0:
		return &codeError{exitUsage, errors.New("hours, seeds, parallel and check-every must be above zero")}
	}
	defer debug.SetGCPercent(debug.SetGCPercent(heapGrowth))
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(heapBytesMax))
	options := dst.Options{Length: time.Duration(f.hours * float64(time.Hour)), Scenario: plan, CheckEvery: f.checkEvery}
	if cmd.Flags().Changed("seed") {
		f.from, f.seeds = f.seed, 1
	}
	var failed *dst.Outcome
	ended := uint64(0)
	sum := dst.Campaign{
		Options: options, From: f.from, Seeds: f.seeds, Parallel: f.parallel, UntilViolation: f.untilViolation,
		Each: func(o dst.Outcome) {
			if o.Violation != nil {
				fmt.Fprintf(cmd.ErrOrStderr(), "seed %d: %v\n", o.Seed, o.Violation)
				if failed == nil || o.Seed < failed.Seed {
					failed = &o
				}
			}
			if ended++; ended%progressEvery == 0 && ended < f.seeds {
				fmt.Fprintf(cmd.ErrOrStderr(), "%d of %d seeds\n", ended, f.seeds)
			}
		},
	}.Run(cmd.Context())
	f.tell(cmd, options, failed)
	if err := f.report(cmd.OutOrStdout(), sum); err != nil {
		return err
	}
	switch {
	case sum.Violations > 0:
		return &codeError{exitViolation, nil}
	case sum.Void() != "":
		return &codeError{exitVoid, fmt.Errorf("the run proves nothing: %s", sum.Void())}
	}
	return cmd.Context().Err()
}

// tell prints the story of the first seed that failed, as small as it gets, or
// that of the only seed if it is asked for.
func (f *dstFlags) tell(cmd *cobra.Command, o dst.Options, failed *dst.Outcome) {
	out := cmd.ErrOrStderr()
	switch {
	case failed != nil:
		fmt.Fprintf(out, "\nseed %d again with fewer events, for at most %v:\n", failed.Seed, f.shrink)
		small := dst.Shrink(failed.Plan, o, f.shrink)
		fmt.Fprintf(out, "%d of %d events are enough:\n", len(small.Events), len(failed.Plan.Events))
		for _, e := range small.Events {
			fmt.Fprintf(out, "  %v\n", e)
		}
		fmt.Fprintf(out, "\nwhat happened:\n  %s\n\n", strings.Join(dst.Tell(small, o).Story, "\n  "))
		fmt.Fprintf(out, "to see it again: rota-jepsen dst --seed %d --hours %v --scenario %s\n\n", failed.Seed, f.hours, f.scenario)
	case f.story && f.seeds == 1:
		fmt.Fprintln(out, strings.Join(dst.Tell(o.Scenario(f.from, int64(o.Length)), o).Story, "\n"))
	}
}

func (f *dstFlags) report(w io.Writer, s dst.Summary) error {
	if f.output == "json" {
		return json.NewEncoder(w).Encode(s)
	}
	_, err := fmt.Fprintf(w, `%d seeds, %.1f simulated hours in %.1f s of CPU: %.0f times as fast as time passes
%d actions (%.0f an hour), %d executions, %d times one got other cores, %d entries, %d elections, %d nodes given up
%d gangs started, of %d a member did not succeed
%d jobs, %d turns held a node group (%.0f an hour), %d turns given up
%d actions started on GPUs of groups between turns, %d of them still ran when a reservation began
%d linearizable reads, %d nodes that had come back when they were given up
%d faults (%.0f an hour)
%s%d upgrades of a server, which had stopped %d times at a scheduler version that its build did not know
%d partitions of a node outlasted its lease, in %d of them the leader changed
%d violations
Not covered: hashicorp/raft, disks and sockets; see "rota-jepsen run".
`, s.Seeds, s.SimulatedHours, s.CPU, s.Speed,
		s.Actions, float64(s.Actions)/max(s.SimulatedHours, 1e-9), s.Executions, s.Resizes, s.Entries, s.Elections, s.Expiries,
		s.Gangs, s.GangsEnded,
		s.Jobs, s.Turns, float64(s.Turns)/max(s.SimulatedHours, 1e-9), s.TurnsLost,
		s.GapActions, s.Overruns,
		s.Reads, s.Overtaken,
		s.Faults, float64(s.Faults)/max(s.SimulatedHours, 1e-9),
		faultTable(s), s.Upgrades, s.Stops, s.Partitions, s.PartitionsLed, s.Violations)
	return err
}

func faultTable(s dst.Summary) string {
	var b strings.Builder
	for _, kind := range slices.Sorted(maps.Keys(s.Happened)) {
		fmt.Fprintf(&b, "  %6d  %s\n", s.Happened[kind], kind)
	}
	return b.String()
}
