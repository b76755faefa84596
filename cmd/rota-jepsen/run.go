package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"rota/jepsen/cluster"
	"rota/jepsen/report"
	"rota/jepsen/scenario"
	"rota/server/replica"
)

// runFlags are what a run can be told.
type runFlags struct {
	seed        int64
	repeat      int
	voidRetries int
	output      string
	binary      string
	otherBinary string
	options     scenario.Options
	// play is scenario.Run, unless a test has its own.
	play func(context.Context, scenario.Scenario, scenario.Options) (*report.Report, error)
}

func newRun() *cobra.Command {
	f := runFlags{play: scenario.Run}
	cmd := &cobra.Command{
		Use: "run SCENARIO...", Short: "Run clusters of real processes under faults",
		Long: `Starts a cluster of real processes in network namespaces of its own, puts load on it,
breaks it as the scenario says, and checks every promise against what was seen. "ci"
stands for all scenarios that every change has to pass. The report and all that was
seen are stored.

It needs root, the programs ip and nft, a kernel that allows PID, mount and network
namespaces, /dev/fuse for scenarios that break disks, and the go command with the
modules of this repository unless --binary is given.

` + exitCodesHelp,
		Example: `  rota-jepsen list
  rota-jepsen run leader-kill
  rota-jepsen run partitions --seed 42 --duration 5m
  rota-jepsen run leader-kill --count 100 -o json
  rota-jepsen run power-losses --log-store boltdb
  rota-jepsen run ci --repeat 3`,
		RunE: f.run,
	}
	fs := cmd.Flags()
	fs.Int64Var(&f.seed, "seed", 0, "decides what is broken when; each repetition takes the next one (default: by the clock)")
	fs.DurationVar(&f.options.Duration, "duration", 0, "go on with rounds of faults for so long (default: one round)")
	fs.IntVar(&f.options.Count, "count", 0, "number of faults, whatever the duration (default: as the scenario says)")
	fs.IntVar(&f.repeat, "repeat", 1, "how often to run each scenario")
	fs.IntVar(&f.voidRetries, "void-retries", 0, "how often to try a run again that proved nothing, as when the machine was too slow; one that saw a promise broken or broke off never is")
	fs.StringVar(&f.options.LogStore, "log-store", "", "what keeps the log of the servers: wal or boltdb (default: as rota)")
	fs.StringVar(&f.options.Store, "store", "store", "folder of the reports")
	fs.StringVar(&f.binary, "binary", "", "rota to test, built with -tags faults (default: build it)")
	fs.StringVar(&f.otherBinary, "other-binary", "", "another build of it, for rolling restarts (default: build it, with another version)")
	fs.StringVarP(&f.output, "output", "o", "text", "text, or json: ends with one line of JSON")
	return cmd
}

func (f *runFlags) run(cmd *cobra.Command, names []string) error {
	scenarios, err := f.scenarios(names)
	if err != nil {
		return &codeError{exitUsage, err}
	}
	if f.seed == 0 {
		f.seed = time.Now().UnixNano() % 1_000_000_000
	}
	// From here on nothing that happens can reach the rest of the machine.
	if err := cluster.Isolate(); err != nil {
		return &codeError{exitUsage, err}
	}
	dir, err := os.MkdirTemp("", "rota-jepsen-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil { // actions run as nobody
		return err
	}
	if err := f.build(cmd.Context(), dir); err != nil {
		return &codeError{exitUsage, err}
	}
	return f.all(cmd, scenarios, dir)
}

// all runs all scenarios, as often as is wanted.
func (f *runFlags) all(cmd *cobra.Command, scenarios []scenario.Scenario, dir string) error {
	var reports, last []*report.Report
	for i := range f.repeat {
		for _, s := range scenarios {
			tries, err := f.tries(cmd, s, i, dir)
			if err != nil {
				return &codeError{exitVoid, err}
			}
			reports = append(reports, tries...)
			last = append(last, tries[len(tries)-1])
		}
	}
	if err := f.finish(cmd, reports); err != nil {
		return err
	}
	return conclude(last)
}

// tries runs one scenario, and again with the next seed while that is void and
// tries are left. The last one counts.
func (f *runFlags) tries(cmd *cobra.Command, s scenario.Scenario, repetition int, dir string) (tries []*report.Report, err error) {
	for {
		// The seeds between are those of the repetitions.
		number := repetition + len(tries)*f.repeat
		rep, err := f.one(cmd, s, f.seed+int64(number), filepath.Join(dir, fmt.Sprintf("%s-%d", s.Name, number)))
		if err != nil {
			return nil, err
		}
		tries = append(tries, rep)
		if len(tries) > f.voidRetries || !again(rep) || cmd.Context().Err() != nil {
			return tries, nil
		}
		fmt.Fprintf(cmd.ErrOrStderr(), "== %s with seed %d is void, is tried again: %s\n", s.Name, rep.Seed, strings.Join(rep.Void(), "; "))
	}
}

// again reports whether a run may be tried again because it is no verdict. One
// that broke off may be one: a cluster that never comes up is no slow machine.
func again(r *report.Report) bool {
	return r.Violations() == 0 && r.Broken == "" && len(r.Void()) > 0
}

// scenarios finds those that were named.
func (f *runFlags) scenarios(names []string) (all []scenario.Scenario, err error) {
	if f.output != "text" && f.output != "json" {
		return nil, fmt.Errorf("--output %q is neither text nor json", f.output)
	}
	if f.repeat < 1 || f.voidRetries < 0 || f.options.Count < 0 || f.options.Duration < 0 {
		return nil, fmt.Errorf("--repeat must be at least 1, --void-retries, --count and --duration not negative")
	}
	if !slices.Contains([]string{"", string(replica.WAL), string(replica.BoltDB)}, f.options.LogStore) {
		return nil, fmt.Errorf("--log-store %q is neither %s nor %s", f.options.LogStore, replica.WAL, replica.BoltDB)
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("which scenario? See: rota-jepsen list")
	}
	for _, name := range names {
		if name == "ci" {
			for _, s := range scenario.All() {
				if s.CI {
					all = append(all, s)
				}
			}
			continue
		}
		s, ok := scenario.Named(name)
		if !ok {
			return nil, fmt.Errorf("there is no scenario %q. See: rota-jepsen list", name)
		}
		all = append(all, s)
	}
	return all, nil
}

// build makes the binaries that were not given.
func (f *runFlags) build(ctx context.Context, dir string) (err error) {
	build := func(given, name, version string) (string, error) {
		if given != "" {
			return filepath.Abs(given)
		}
		return cluster.Build(ctx, dir, cluster.BuildOptions{
			Name: name, Tags: []string{"faults"}, LDFlags: "-X rota/cmd/internal/cli.Version=" + version,
		})
	}
	if f.options.Binary, err = build(f.binary, "rota", "dev"); err != nil {
		return err
	}
	f.options.OtherBinary, err = build(f.otherBinary, "rota-other", "dev-other")
	return err
}

// one runs one scenario.
func (f *runFlags) one(cmd *cobra.Command, s scenario.Scenario, seed int64, dir string) (*report.Report, error) {
	o := f.options
	o.Dir, o.Seed = dir, seed
	stderr := cmd.ErrOrStderr()
	fmt.Fprintf(stderr, "== %s, seed %d: %s\n", s.Name, o.Seed, s.About)
	o.Log = func(format string, args ...any) { fmt.Fprintf(stderr, format+"\n", args...) }
	rep, err := f.play(cmd.Context(), s, o)
	if err != nil {
		return nil, err
	}
	if f.output == "text" {
		rep.Write(cmd.OutOrStdout())
		fmt.Fprintln(cmd.OutOrStdout())
	}
	fmt.Fprintf(stderr, "== %s: %s\n   %s\n", s.Name, rep.Conclusion(), rep.Dir)
	// The data of a run that proved what it should is not needed any more.
	return rep, os.RemoveAll(dir)
}

// finish sums up all runs, also those that were void and tried again.
func (f *runFlags) finish(cmd *cobra.Command, reports []*report.Report) error {
	if len(reports) > 1 {
		fmt.Fprintf(cmd.ErrOrStderr(), "== faults that happened: %s\n", happened(reports))
	}
	if f.output == "json" {
		return json.NewEncoder(cmd.OutOrStdout()).Encode(report.Sum(reports))
	}
	return nil
}

// conclude decides the exit code.
func conclude(reports []*report.Report) error {
	var violated, void []string
	for _, r := range reports {
		switch {
		case r.Violations() > 0:
			violated = append(violated, r.Scenario)
		case len(r.Void()) > 0:
			why, _, _ := strings.Cut(strings.Join(r.Void(), "; "), "\n")
			void = append(void, fmt.Sprintf("%s (%s)", r.Scenario, why))
		}
	}
	switch {
	case len(violated) > 0:
		return &codeError{exitViolation, fmt.Errorf("promises were broken in %s; a run is repeated with the same --seed", strings.Join(violated, ", "))}
	case len(void) > 0:
		return &codeError{exitVoid, fmt.Errorf("nothing is proved by %s; see the report", strings.Join(void, ", "))}
	}
	return nil
}

// happened counts faults by name.
func happened(reports []*report.Report) string {
	counts := map[string]int{}
	for _, r := range reports {
		for _, a := range r.Faults {
			if a.Fault.Happened != "" {
				counts[a.Fault.Name]++
			}
		}
	}
	var all []string
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		all = append(all, fmt.Sprintf("%s %d", name, counts[name]))
	}
	return strings.Join(all, ", ")
}
