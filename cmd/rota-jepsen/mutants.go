package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"rota/jepsen/mutant"
)

type mutantsFlags struct {
	engine string
	list   bool
	store  string
	output string
}

func newMutants() *cobra.Command {
	var f mutantsFlags
	cmd := &cobra.Command{
		Use: "mutants [NAME...]", Short: "Plant bugs, and see whether they are noticed",
		Long: `Plants one bug after the other and lets loose on it what should notice: the
simulation, or a cluster of real processes. The bugs are edits that are applied while
compiling; no file changes. Run it in a checkout of the sources. Each kind of hunt is
then tried as often without a bug, and must find nothing.

` + exitCodesHelp,
		Example: `  rota-jepsen mutants --list
  rota-jepsen mutants
  rota-jepsen mutants missing-fence fsync-skipped
  rota-jepsen mutants --engine dst -o json`,
		RunE: f.run,
	}
	fs := cmd.Flags()
	fs.StringVar(&f.engine, "engine", "", "only those hunted by dst, run or test")
	fs.BoolVar(&f.list, "list", false, "list the mutants and hunt none")
	fs.StringVar(&f.store, "store", "store", "folder of the table of results, mutants.json")
	fs.StringVarP(&f.output, "output", "o", "text", "text, or json: ends with one line of JSON")
	return cmd
}

func (f *mutantsFlags) run(cmd *cobra.Command, names []string) error {
	mutants, err := f.chosen(names)
	if err != nil {
		return &codeError{exitUsage, err}
	}
	if f.list {
		listMutants(cmd.OutOrStdout(), mutants)
		return nil
	}
	hunter, done, err := newHunter(cmd.Context())
	if err != nil {
		return &codeError{exitUsage, err}
	}
	defer done()
	return f.hunt(cmd, hunter, mutants)
}

func (f *mutantsFlags) chosen(names []string) (chosen []mutant.Mutant, err error) {
	if f.output != "text" && f.output != "json" {
		return nil, fmt.Errorf("--output %q is neither text nor json", f.output)
	}
	known := map[string]bool{}
	for _, m := range mutant.All() {
		known[m.Name] = true
		if (len(names) == 0 || slices.Contains(names, m.Name)) && (f.engine == "" || f.engine == m.Hunt.Engine) {
			chosen = append(chosen, m)
		}
	}
	for _, name := range names {
		if !known[name] {
			return nil, fmt.Errorf("there is no mutant %q. See: rota-jepsen mutants --list", name)
		}
	}
	if len(chosen) == 0 {
		return nil, errors.New("no mutant is left to hunt. See: rota-jepsen mutants --list")
	}
	return chosen, nil
}

func listMutants(out io.Writer, mutants []mutant.Mutant) {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	defer t.Flush()
	for _, m := range mutants {
		fmt.Fprintf(t, "%s\t%s %s\t%s\n", m.Name, m.Hunt.Engine, strings.Join(m.Hunt.Args, " "), m.Bug)
	}
}

// newHunter prepares a hunt in the checkout that the working directory is in.
func newHunter(ctx context.Context) (h *mutant.Hunter, done func(), err error) {
	out, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	if err != nil || strings.TrimSpace(string(out)) == os.DevNull {
		return nil, nil, errors.New("mutants are built from the sources: run this in a checkout of rota, with the go command in the PATH")
	}
	self, err := os.Executable()
	if err != nil {
		return nil, nil, err
	}
	dir, err := os.MkdirTemp("", "rota-mutants-")
	if err != nil {
		return nil, nil, err
	}
	h = &mutant.Hunter{Root: filepath.Dir(strings.TrimSpace(string(out))), Dir: dir, Jepsen: self}
	return h, func() { _ = os.RemoveAll(dir) }, nil
}

// mutantsSummary is the line of JSON that ends the hunt.
type mutantsSummary struct {
	Planted int `json:"planted"`
	Caught  int `json:"caught"`
}

func (f *mutantsFlags) hunt(cmd *cobra.Command, h *mutant.Hunter, mutants []mutant.Mutant) error {
	var catches []mutant.Catch
	sum := mutantsSummary{Planted: len(mutants)}
	falseAlarms := 0
	hunt := func(list []mutant.Mutant) {
		for _, m := range list {
			if cmd.Context().Err() != nil {
				break
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "== %s: %s\n", m.Name, m.Bug)
			c := h.Hunt(cmd.Context(), &m)
			fmt.Fprintf(cmd.ErrOrStderr(), "   %s\n", conclusion(c))
			catches = append(catches, c)
			switch {
			case len(m.Edits) == 0 && (c.Caught || c.Error != ""):
				falseAlarms++
			case len(m.Edits) > 0 && c.Caught:
				sum.Caught++
			}
		}
	}
	hunt(mutants)
	if cmd.Context().Err() == nil {
		hunt(mutant.Controls(mutants, catches))
	}
	if err := f.report(cmd.OutOrStdout(), catches, sum); err != nil {
		return err
	}
	switch {
	case cmd.Context().Err() != nil:
		return &codeError{exitVoid, errors.New("interrupted: not all mutants were hunted")}
	case falseAlarms > 0:
		return &codeError{exitVoid, fmt.Errorf("%d hunts ended badly without any bug: what they catch means nothing", falseAlarms)}
	case sum.Caught < sum.Planted:
		return &codeError{exitViolation, nil}
	}
	return nil
}

func conclusion(c mutant.Catch) string {
	switch {
	case c.Caught:
		return fmt.Sprintf("caught by %s after %.1f s and %d runs: %s", c.By, c.Seconds, c.Tries, c.Evidence)
	case c.Error != "":
		return "not caught: " + c.Error
	case c.Other != "":
		return fmt.Sprintf("not caught in %.1f s and %d runs by a checker that should notice it, but alarmed %s", c.Seconds, c.Tries, c.Other)
	}
	return fmt.Sprintf("nothing noticed in %.1f s and %d runs", c.Seconds, c.Tries)
}

func (f *mutantsFlags) report(out io.Writer, catches []mutant.Catch, sum mutantsSummary) error {
	if err := os.MkdirAll(f.store, 0o755); err != nil {
		return err
	}
	raw, err := json.MarshalIndent(catches, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(f.store, "mutants.json"), append(raw, '\n'), 0o644); err != nil {
		return err
	}
	if f.output == "json" {
		return json.NewEncoder(out).Encode(sum)
	}
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "mutant\thunted by\tcaught by\tafter\truns")
	for _, c := range catches {
		by := c.By
		if !c.Caught {
			by = "-"
		}
		fmt.Fprintf(t, "%s\t%s %s\t%s\t%.1f s\t%d\n", c.Name, c.Engine, c.Hunt, by, c.Seconds, c.Tries)
	}
	fmt.Fprintf(t, "\n%d planted, %d caught\n", sum.Planted, sum.Caught)
	return t.Flush()
}
