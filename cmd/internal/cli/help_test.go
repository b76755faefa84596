package cli

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"github.com/spf13/pflag"
)

// What does not exist is an error of the command line, also where cobra made the command.
func TestHelpOfWhatDoesNotExist(t *testing.T) {
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"help", "nosuch"}, exitUsage, `unknown command "nosuch" for "rota"`},
		{[]string{"help", "node", "lits"}, exitUsage, "Did you mean: rota node list"},
		{[]string{"completion", "ksh"}, exitUsage, `unknown command "ksh" for "rota completion"`},
		{[]string{"help", "node", "list"}, exitOK, "rota node list [flags]"},
		{[]string{"completion", "bash"}, exitOK, "__start_rota"},
		{[]string{"help"}, exitOK, "rota decides when"},
	} {
		var out, errOut strings.Builder
		if code := run(t.Context(), c.args, &out, &errOut); code != c.code || !strings.Contains(out.String()+errOut.String(), c.says) {
			t.Errorf("rota %s: exit code %d\n%s%s", strings.Join(c.args, " "), code, out.String(), errOut.String())
		}
	}
}

// A zero says nothing: help names the default, or what zero means.
func TestHelpOfProcessesNamesDefaults(t *testing.T) {
	root, said := (&app{}).root(), regexp.MustCompile(`\(default|\b0: |needed with --`)
	for name, cmd := range sections(root) {
		n := 0
		cmd.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
			n++
			zero := f.DefValue == "0" || f.DefValue == "0s"
			if zero && !said.MatchString(f.Usage) {
				t.Errorf("rota %s --%s: %q does not say what the default is", name, f.Name, f.Usage)
			}
		})
		if n < 10 {
			t.Errorf("rota %s has only %d flags", name, n)
		}
	}
	lease := root.Commands()[0].Flags() // any set
	lease.Duration("lease", 0, "of a new cluster: lease of a node (default 10s)")
	if got := inEffect(lease.Lookup("lease")); got != "10s" {
		t.Errorf("without the flag, the lease in effect is %q", got)
	}
	if err := lease.Set("lease", "3s"); err != nil || inEffect(lease.Lookup("lease")) != "3s" {
		t.Errorf("%v, and the lease in effect is %q", err, inEffect(lease.Lookup("lease")))
	}
}

func TestAnInterruptionIsNoError(t *testing.T) {
	err := fmt.Errorf("watch actions: %w", connect.NewError(connect.CodeCanceled, context.Canceled))
	if got := describe(err, "a:1"); got != "interrupted" || exitCode(err) != exitInterrupted {
		t.Errorf("describe = %q with exit code %d", got, exitCode(err))
	}
}
