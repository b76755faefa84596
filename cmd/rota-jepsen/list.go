package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"rota/jepsen/check"
	"rota/jepsen/fault"
	"rota/jepsen/scenario"
	"rota/jepsen/workload"
)

func newList() *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List scenarios, faults, workloads and checkers", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			list(cmd.OutOrStdout())
			return nil
		},
	}
}

func list(out io.Writer) {
	section := func(title string, rows func(row func(cells ...string))) {
		fmt.Fprintf(out, "%s\n", title)
		t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
		rows(func(cells ...string) { fmt.Fprintf(t, "  %s\n", strings.Join(cells, "\t")) })
		t.Flush()
		fmt.Fprintln(out)
	}
	for _, ci := range []bool{true, false} {
		title := "Scenarios with one kind of fault"
		if ci {
			title = "Scenarios of \"run ci\""
		}
		section(title, func(row func(...string)) {
			for _, s := range scenario.All() {
				if s.CI == ci {
					row(s.Name, s.About)
				}
			}
		})
	}
	section("Faults", func(row func(...string)) {
		for _, f := range fault.All() {
			row(f.Name, f.About)
		}
	})
	section("Workloads, all of which run in every scenario but abuse, abuse-latency and full-tails", func(row func(...string)) {
		for _, w := range workload.All() {
			row(w.Name, w.About)
		}
	})
	section("Checkers, all of which look at every run, but those that its scenario leaves out", func(row func(...string)) {
		for _, c := range check.All() {
			row(c.Name, c.Promise)
		}
	})
}
