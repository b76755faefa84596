package main

import (
	"encoding/json"
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"rota/jepsen/check"
	"rota/jepsen/history"
	"rota/jepsen/report"
	"rota/jepsen/scenario"
)

func newCheck() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use: "check FOLDER...", Short: "Check what runs have stored again, such as after a checker was changed",
		Long:    "Holds the stored record of a run against all promises again. Nothing is changed.\n\n" + exitCodesHelp,
		Example: "  rota-jepsen check store/leader-kill-*",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, folders []string) error {
			var reports []*report.Report
			for _, dir := range folders {
				rep, err := checkAgain(dir)
				if err != nil {
					return &codeError{exitUsage, err}
				}
				if output == "json" {
					fmt.Fprintf(cmd.ErrOrStderr(), "== %s: %s\n", filepath.Base(dir), rep.Conclusion())
				} else {
					rep.Write(cmd.OutOrStdout())
				}
				reports = append(reports, rep)
			}
			if output == "json" {
				if err := json.NewEncoder(cmd.OutOrStdout()).Encode(report.Sum(reports)); err != nil {
					return err
				}
			}
			return conclude(reports)
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "text", "text, or json: one line of JSON")
	return cmd
}

// checkAgain makes the report of a stored record.
func checkAgain(dir string) (*report.Report, error) {
	record, err := history.Load(dir)
	if err != nil {
		return nil, err
	}
	s, ok := scenario.Named(record.Scenario)
	if !ok {
		return nil, fmt.Errorf("%s is of the scenario %q, which there is not any more", dir, record.Scenario)
	}
	return report.Again(dir, record, check.Run(record, s.Limits))
}
