package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"rota/internal/sim/evaluate"
	"rota/internal/sim/past"
	"rota/server/replica"
)

// simLogFlags are those of replay-log.
type simLogFlags struct {
	options  past.Options
	policies []string
	quotas   []string
	workers  int
}

func (a *app) simLogCmd() *cobra.Command {
	var f simLogFlags
	cmd := &cobra.Command{
		Use: "replay-log DIR", Short: "Replay what a real cluster did, on other nodes or under another policy", Args: exactly("DIR"),
		Long: `Reads the log and the snapshots in the data folder of a server, and replays the actions and
trajectories that it finds, in virtual time. Nothing is written to the folder. Stop the
server first, or give a copy of its folder that was made while the server was stopped.

The table has what was measured ("as it happened"), then a simulation of the same cluster,
whose error says how far to trust the rest, then each policy on the cluster as you change it:
rota, fixed-N (elastic actions get N cores), pod (a pod for each trajectory) and equal (an
idealized policy: equal shares of all cores as one machine). pod and equal know no quotas.

A trajectory submits its next action as long after the end of the one before as it did.
Actions without a trajectory come when they came. docs/evaluation.md says what is assumed.`,
		Example: "  rota sim replay-log /var/lib/rota\n  rota sim replay-log /var/lib/rota --nodes 8\n" +
			"  rota sim replay-log /var/lib/rota --cores 64 --policies rota,fixed-4,pod,equal\n" +
			"  rota sim replay-log /var/lib/rota --quota search=20 -o json",
		RunE: func(cmd *cobra.Command, args []string) error {
			policies, err := f.read(cmd)
			if err != nil {
				return err
			}
			p, err := readPast(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			defer debug.SetGCPercent(debug.SetGCPercent(simCollectPercent))
			r, err := p.Replay(cmd.Context(), f.options, policies, f.workers)
			if err != nil {
				return simError(err)
			}
			return a.printPast(&f, r)
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&f.options.Pool, "pool", "", "pool to replay (default: the one with the most actions)")
	fs.IntVar(&f.options.Nodes, "nodes", 0, "number of nodes: the cluster's own, repeated if these are fewer (default: the cluster's own)")
	fs.IntVar(&f.options.Cores, "cores", 0, "cores of each node (default: as many as it has)")
	fs.StringArrayVar(&f.quotas, "quota", nil, "limit of each key of a quota, NAME=LIMIT (default: as it is)")
	fs.StringVar(&f.options.Known, "known", "", "what rota knows of how long actions take: profiles (clients say it exactly), sizes (what it learns by class and size), classes (what it learns by class) or nothing (default: as it was)")
	fs.StringSliceVar(&f.policies, "policies", []string{"rota"}, "policies to simulate: rota, fixed-N, pod, equal")
	fs.IntVar(&f.workers, "workers", runtime.NumCPU(), "number of policies that run at the same time")
	return cmd
}

// read checks the flags and returns the policies to simulate beside the cluster as it was:
// none if nothing is to be different.
func (f *simLogFlags) read(cmd *cobra.Command) ([]string, error) {
	o := &f.options
	for name, v := range map[string]int{"nodes": o.Nodes, "cores": o.Cores} {
		if most := map[string]int{"nodes": 10_000, "cores": 512}[name]; cmd.Flags().Changed(name) && (v < 1 || v > most) {
			return nil, usageErrorf("--%s must be from 1 to %d", name, most)
		}
	}
	if known := []string{"", past.KnownProfiles, past.KnownSizes, past.KnownClasses, past.KnownNothing}; !slices.Contains(known, o.Known) {
		return nil, usageErrorf("--known must be profiles, sizes, classes or nothing, not %q", o.Known)
	}
	o.Quotas = make(map[string]int64)
	for _, pair := range f.quotas {
		name, text, _ := strings.Cut(pair, "=")
		limit, err := strconv.ParseInt(text, 10, 32)
		if err != nil || name == "" || limit < 1 {
			return nil, usageErrorf("--quota %q is not NAME=LIMIT with a limit of at least 1", pair)
		}
		o.Quotas[name] = limit
	}
	for _, policy := range f.policies {
		if err := past.CheckPolicy(policy); err != nil {
			return nil, simError(err)
		}
	}
	if o.Nodes+o.Cores+len(o.Quotas) == 0 && o.Known == "" && slices.Equal(f.policies, []string{"rota"}) {
		return nil, nil
	}
	return f.policies, nil
}

// readPast reads the data folder of a server that is stopped.
func readPast(ctx context.Context, dir string) (*past.Past, error) {
	entries, err := replica.ReadLog(dir)
	if err != nil {
		return nil, logError(dir, err)
	}
	snapshot, err := beginning(dir, entries)
	if err != nil {
		return nil, err
	}
	r, err := readerAt(snapshot)
	if err != nil {
		return nil, fmt.Errorf("the snapshot in %s cannot be read; take the folder of another server: %w", dir, err)
	}
	for _, e := range entries {
		if e.Index <= snapshot.Index || e.Command == nil {
			continue
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if err := r.Apply(e.Index, e.Term, e.Command); err != nil {
			return nil, fmt.Errorf("the log in %s cannot be replayed; take the folder of another server: %w", dir, err)
		}
	}
	return r.Past(), nil
}

// logError says what an error of reading the log of a server means.
func logError(dir string, err error) error {
	switch {
	case errors.Is(err, replica.ErrInUse):
		return fmt.Errorf("a server runs on %s: stop the server, or stop it for a moment and copy the folder (%w)", dir, err)
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%s is not the data folder of a server; give the one of --data-dir, which holds raft.db (%w)", dir, err)
	}
	return fmt.Errorf("the log in %s cannot be read; take the folder of another server: %w", dir, err)
}

// beginning returns the oldest snapshot that the log goes on from, none if the log begins
// with its first entry.
func beginning(dir string, entries []replica.StoredEntry) (none replica.StoredSnapshot, err error) {
	snapshots, err := replica.ReadSnapshots(dir)
	if err != nil {
		return none, err
	}
	first := len(entries) // of those that follow each other up to the end
	for first > 0 && (first == len(entries) || entries[first-1].Index+1 == entries[first].Index) {
		first--
	}
	switch {
	case len(entries) == 0 && len(snapshots) == 0:
		return none, fmt.Errorf("the log in %s is empty: take the folder of another server", dir)
	case len(entries) == 0:
		return snapshots[len(snapshots)-1], nil
	case entries[first].Index == 1:
		return none, nil
	}
	for _, s := range snapshots {
		if s.Index+1 >= entries[first].Index {
			return s, nil
		}
	}
	return none, fmt.Errorf("the log in %s begins at entry %d, and there is no snapshot up to there: take the whole folder, or that of another server", dir, entries[first].Index)
}

func readerAt(s replica.StoredSnapshot) (*past.Reader, error) {
	var content io.ReadCloser
	if s.Path != "" {
		file, err := os.Open(filepath.Clean(s.Path))
		if err != nil {
			return nil, err
		}
		content = file
	}
	return past.NewReader(content)
}

// printPast writes what was read and the table.
func (a *app) printPast(f *simLogFlags, r *past.Report) error {
	if a.json() {
		return writeJSON(a.out, r)
	}
	d := &r.Data
	fmt.Fprintf(a.out, "read: %s and %s of pool %s on %s, from %s to %s\n", plural(d.Actions, "action"), plural(d.Trajectories, "trajectory"),
		d.Pool, d.Nodes, d.From.Format(time.DateTime), d.To.Format(time.DateTime+" MST"))
	if !d.Whole {
		fmt.Fprintln(a.out, "what was before is in no snapshot any more")
	}
	for _, why := range slices.Sorted(maps.Keys(d.LeftOut)) {
		fmt.Fprintf(a.out, "left out: %s (%s)\n", plural(d.LeftOut[why], "action"), why)
	}
	for _, note := range d.Notes {
		fmt.Fprintln(a.out, "note:", note)
	}
	fmt.Fprintf(a.out, "\nall but the first line is simulated; to start an action and to report its end took %s ms (median)\n", simMS(d.Dispatch))
	rows := [][]string{pastRow("as it happened", d.Nodes, r.Happened, r.Happened), pastRow("rota, simulated", d.Nodes, r.Present, r.Happened)}
	for _, w := range r.WhatIf {
		rows = append(rows, pastRow("what if: "+w.Policy+f.changes(), w.Nodes, w.Result, r.Happened))
	}
	writeTable(a.out, []string{"case", "nodes", "ACT ms", "of real", "p50 ms", "p90 ms", "p99 ms", "queue ms", "exec ms", "overhead ms", "busy %", "makespan s"}, rows)
	fmt.Fprintf(a.out, "\nerror of the simulation, of the cluster as it was: mean ACT %+.1f %%, p50 %+.1f %%, p99 %+.1f %%\n",
		float64(r.Error.ACTMean)/1e4, float64(r.Error.ACTP50)/1e4, float64(r.Error.ACTP99)/1e4)
	return nil
}

// changes are what is different beside the nodes.
func (f *simLogFlags) changes() (text string) {
	for _, name := range slices.Sorted(maps.Keys(f.options.Quotas)) {
		text += fmt.Sprintf(", %s=%d", name, f.options.Quotas[name])
	}
	if f.options.Known != "" {
		text += ", " + f.options.Known + " known"
	}
	return text
}

func pastRow(name, nodes string, r, happened *evaluate.Result) []string {
	return []string{name, nodes, simMS(r.ACTMean), simFactor(r.ACTMean, happened.ACTMean), simMS(r.ACTP50), simMS(r.ACTP90), simMS(r.ACTP99),
		simMS(r.QueueMean), simMS(r.ExecMean), simMS(r.OverheadMean), fmt.Sprintf("%.1f", float64(r.Busy)/1e4), fmt.Sprintf("%.1f", float64(r.Makespan)/1e3)}
}
