package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/spf13/cobra"

	"rota/internal/telemetry"
)

// logLevelCmd changes what processes log, while they run.
func (a *app) logLevelCmd() *cobra.Command {
	return &cobra.Command{
		Use: "log-level [LEVEL]", Short: "Show or change the log level of the processes at --addr", Args: atMostOne("LEVEL"),
		Long: `Changes the log level of every process at --addr, until the process ends. The addresses are
those of servers, or of the --metrics ports of agents. The levels are trace, debug, info,
warn and error. Without LEVEL, the command shows the levels. It needs the role operator.`,
		Example: "  rota operator log-level debug --addr 127.0.0.1:7400\n  rota operator log-level --addr 127.0.0.1:7412",
		RunE: func(cmd *cobra.Command, args []string) error {
			addrs, err := splitAddrs(a.settings.addr)
			if err != nil {
				return err
			}
			var rows [][]string
			var errs []error
			for _, addr := range addrs {
				method, body, is := http.MethodGet, "", ""
				if len(args) == 1 {
					method, body, is = http.MethodPut, args[0], args[0]
				}
				answer, err := a.processOK(cmd.Context(), addr, method, telemetry.LogLevelPath, []byte(body), a.settings.timeout)
				if err != nil {
					errs = append(errs, err)
					continue
				}
				before := strings.TrimSpace(string(answer))
				if is == "" {
					is = before
				}
				rows = append(rows, []string{addr, is, before})
			}
			type level struct{ Address, Level, Before string }
			all := make([]level, len(rows))
			for i, r := range rows {
				all[i] = level{r[0], r[1], r[2]}
			}
			return errors.Join(a.printValue(all, []string{"address", "level", "before"}, rows), errors.Join(errs...))
		},
	}
}

// readyCmd asks one process for its readiness, for probes that have no HTTP client with
// certificates.
func (a *app) readyCmd() *cobra.Command {
	return &cobra.Command{
		Use: "ready", Short: "Check that the server or agent at --addr is ready", Args: exactly(),
		Long: `Asks the process for /readyz. --addr is the address of a server, or of the --metrics port of
an agent. The command exits with 0 only if the process is ready. Otherwise it says why not.`,
		Example: "  rota operator ready --addr 127.0.0.1:7400\n  rota operator ready --addr 127.0.0.1:7412 -o json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			addrs, err := splitAddrs(a.settings.addr)
			if err != nil {
				return err
			}
			if len(addrs) != 1 {
				return usageErrorf("--addr names %d processes; give the address of one", len(addrs))
			}
			answer, status, err := a.process(cmd.Context(), addrs[0], http.MethodGet, "/readyz", nil, a.settings.timeout)
			if err != nil {
				return err
			}
			var h telemetry.Health
			if err := json.Unmarshal(answer, &h); err != nil {
				return fmt.Errorf("%s answered with status %d and no readiness: %s", addrs[0], status, strings.TrimSpace(string(answer)))
			}
			var rows [][]string
			for _, c := range h.Checks {
				rows = append(rows, []string{c.Name, yesNo(c.OK), c.Reason})
			}
			if err := a.printValue(h, []string{"check", "ok", "reason"}, rows); err != nil {
				return err
			}
			if !h.OK {
				return &codeError{exitError, fmt.Errorf("%s is not ready", addrs[0])}
			}
			return nil
		},
	}
}
