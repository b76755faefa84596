package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"

	"rota/internal/failpoint"
	"rota/jepsen/check"
	"rota/jepsen/history"
)

// Names of the files of a report, beside those of the record.
const (
	TextFile = "report.txt"
	JSONFile = "report.json"
)

// Save writes the report into its folder.
func (r *Report) Save() error {
	raw, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(r.Dir, JSONFile), append(raw, '\n'), 0o644); err != nil {
		return err
	}
	var text bytes.Buffer
	r.Write(&text)
	return os.WriteFile(filepath.Join(r.Dir, TextFile), text.Bytes(), 0o644)
}

// Write writes the report for people.
func (r *Report) Write(w io.Writer) {
	fmt.Fprintf(w, "%s: %s\n", r.Scenario, r.Conclusion())
	if r.About != "" {
		fmt.Fprintf(w, "%s\n", r.About)
	}
	fmt.Fprintf(w, "seed %d, %d servers, %d agents, %.1f s, %s\n", r.Seed, r.Servers, r.Agents, r.Seconds, r.Started.Format("2006-01-02 15:04:05"))
	fmt.Fprintf(w, "rota %s, %s, %s\n", r.Versions.Rota, r.Versions.Go, r.Versions.Kernel)
	if r.Versions.Old != "" {
		fmt.Fprintf(w, "the other build: rota %s\n", r.Versions.Old)
	}
	r.writeVoid(w)
	r.writeFaults(w)
	r.writeWindows(w)
	r.writeRates(w)
	r.writeAbuse(w)
	r.writeHealing(w)
	r.writeVerdicts(w)
}

// Conclusion is the report in one line.
func (r *Report) Conclusion() string {
	word := "passed"
	switch {
	case r.Violations() > 0:
		word = "VIOLATED"
	case len(r.Void()) > 0:
		word = "VOID"
	}
	text := fmt.Sprintf("%s; %d operations (%.0f a second under faults), %d executions, %d faults, %d violations",
		word, r.Operations, r.UnderFaults.PerSecond, r.Executions, len(r.Faults), r.Violations())
	if r.FailoverP50 != nil {
		text += fmt.Sprintf(", failover p50 %.0f ms and p99 %.0f ms", *r.FailoverP50, *r.FailoverP99)
	}
	return text
}

func (r *Report) writeVoid(w io.Writer) {
	for i, why := range r.Void() {
		if i == 0 {
			fmt.Fprintln(w, "\nwhy this run proves nothing")
		}
		fmt.Fprintf(w, "  %s\n", why)
	}
}

// table writes rows of tab-separated cells below a title.
func table(w io.Writer, title string, rows func(row func(format string, args ...any))) {
	fmt.Fprintf(w, "\n%s\n", title)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	rows(func(format string, args ...any) { fmt.Fprintf(t, "  "+format+"\n", args...) })
	t.Flush()
}

func (r *Report) writeFaults(w io.Writer) {
	table(w, "faults", func(row func(string, ...any)) {
		row("at s\tfor s\twrite after s\twhole after s\tfault\ttarget\thow it is known that it happened")
		for _, a := range r.Faults {
			f := a.Fault
			lasted := "-"
			if f.End > 0 {
				lasted = fmt.Sprintf("%.2f", float64(f.End-f.Start)/1e9)
			}
			happened := f.Happened
			if happened == "" {
				happened = "IT DID NOT HAPPEN"
			}
			if f.Detail != "" {
				happened += " (" + f.Detail + ")"
			}
			row("%.2f\t%s\t%s\t%s\t%s\t%s\t%s", float64(f.Start)/1e9, lasted, a.write(), whole(f), f.Name, strings.Join(f.Target, " "), happened)
		}
	})
}

// write is how long after the fault the first write was acknowledged.
func (a *Around) write() string {
	if a.WriteAfter == nil {
		return "never"
	}
	return fmt.Sprintf("%.2f", *a.WriteAfter/1000)
}

// whole is how long after the fault all members were back.
func whole(f history.Fault) string {
	if f.Whole == 0 {
		return "never"
	}
	return fmt.Sprintf("%.2f", float64(f.Whole-f.End)/1e9)
}

// writeWindows says at which failpoints processes died, and at which of all none did.
func (r *Report) writeWindows(w io.Writer) {
	hits := make(map[string]int)
	for _, a := range r.Faults {
		if a.Fault.Window != "" {
			hits[a.Fault.Window]++
		}
	}
	if len(hits) == 0 {
		return
	}
	var hit, never []string
	for _, name := range failpoint.Names() {
		if n := hits[name]; n > 0 {
			hit = append(hit, fmt.Sprintf("%s %d", name, n))
		} else {
			never = append(never, name)
		}
	}
	fmt.Fprintf(w, "\nprocesses died in %d of %d windows: %s\n", len(hit), len(hit)+len(never), strings.Join(hit, ", "))
	if len(never) > 0 {
		fmt.Fprintf(w, "  in none of these: %s\n", strings.Join(never, ", "))
	}
}

func (r *Report) writeRates(w io.Writer) {
	table(w, "successful calls a second, with p50 and p99 in ms, around each fault", func(row func(string, ...any)) {
		row("fault\tbefore\t\t\tduring\t\t\tafter\t\t")
		for _, a := range r.Faults {
			row("%s\t%s\t%s\t%s", a.Fault.Name, cells(a.Before), cells(a.During), cells(a.After))
		}
		row("all under faults\t\t\t\t%s\t\t\t", cells(r.UnderFaults))
	})
}

func cells(v Window) string {
	if v.Seconds <= 0 {
		return "-\t\t"
	}
	return fmt.Sprintf("%.0f\t%.1f\t%.1f", v.PerSecond, v.P50, v.P99)
}

func (r *Report) writeHealing(w io.Writer) {
	h := r.Healing
	if h.Stopped == 0 {
		return
	}
	settled := "never"
	if h.Settled != 0 {
		settled = fmt.Sprintf("after %.2f s", float64(h.Settled-h.Stopped)/1e9)
	}
	fmt.Fprintf(w, "\nwithout load, everything ended %s\n", settled)
	for _, left := range h.Left {
		fmt.Fprintf(w, "  left behind: %s\n", left)
	}
}

func (r *Report) writeVerdicts(w io.Writer) {
	table(w, "checkers", func(row func(string, ...any)) {
		for _, v := range r.Verdicts {
			row("%s\t%s\t%d checked%s%s", v.Checker, word(v), v.Checked, prefixed("; ", v.Skipped), prefixed("; in part: ", v.Partly))
		}
	})
	for _, v := range r.Verdicts {
		for _, violation := range v.Violations {
			fmt.Fprintf(w, "\n%s: %s\n", v.Checker, strings.ReplaceAll(strings.TrimRight(violation, "\n"), "\n", "\n  "))
		}
	}
}

func word(v check.Verdict) string {
	switch {
	case v.Skipped != "":
		return "skipped"
	case v.Vacuous():
		return "VACUOUS"
	case v.OK():
		return "ok"
	}
	return fmt.Sprintf("%d VIOLATIONS", v.Total)
}

func prefixed(prefix, text string) string {
	if text == "" {
		return ""
	}
	return prefix + text
}

// Again is the report of a stored record after other verdicts. What the record
// does not say is that of the stored report.
func Again(dir string, record *history.Record, verdicts []check.Verdict) (*Report, error) {
	raw, err := os.ReadFile(filepath.Join(dir, JSONFile))
	if err != nil {
		return nil, err
	}
	var old Report
	if err := json.Unmarshal(raw, &old); err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(dir, JSONFile), err)
	}
	rep := New(record, verdicts)
	rep.About, rep.Started, rep.Versions, rep.Dir, rep.Broken = old.About, old.Started, old.Versions, dir, old.Broken
	return rep, nil
}
