package cli

import (
	"bytes"
	"context"
	"strings"
	"testing"
)

// said runs a command that must not get as far as to call a server, and returns what it
// says.
func said(t *testing.T, args ...string) string {
	t.Helper()
	var out, errOut bytes.Buffer
	if code := run(context.Background(), append(args, "--addr", "127.0.0.1:1"), &out, &errOut); code != exitUsage {
		t.Errorf("%q exits with %d and says %s%s", args, code, out.String(), errOut.String())
	}
	return errOut.String()
}

func TestWrongValuesOfFlagsAreNamedPlainly(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"run", "--cores", "abc"}, `--cores "abc" is not a whole number from 0 on`},
		{[]string{"run", "--cores", "-1"}, `--cores "-1" is not a whole number from 0 on`},
		{[]string{"run", "--gpus", "1,x"}, `--gpus "1,x" is not a whole number`},
		{[]string{"quota", "create", "q", "--limit", "99999999999"}, `--limit "99999999999" is too large`},
		{[]string{"run", "--timeout", "5"}, `--timeout "5" is not a duration; write it like`},
		{[]string{"run", "--memory", "abc"}, `--memory: "abc" is not a size`},
		{[]string{"run", "--timeout", "-1s", "--", "true"}, `--timeout is -1s, and must not be negative`},
		{[]string{"run", "--queue-timeout", "-1s", "--", "true"}, `--queue-timeout is -1s, and must not be negative`},
		{[]string{"node", "list", "--request-timeout", "-5s"}, `--request-timeout is -5s, and must not be negative`},
		{[]string{"node", "list", "--request-timeout", "0"}, `--request-timeout is 0s, and must not be negative or zero`},
		{[]string{"operator", "namespace", "set", "team"}, "at least one of the flags in the group [weight"},
		{[]string{"report", "--csv", "-o", "json"}, "--csv and -o json are two formats"},
		{[]string{"action", "summary", "--csv", "-o", "json"}, "--csv and -o json are two formats"},
		{[]string{"operator", "namespace", "usage", "--csv", "-o", "json"}, "--csv and -o json are two formats"},
		{[]string{"trajectory", "summary", "7", "--csv", "-o", "json"}, "--csv and -o json are two formats"},
		{[]string{"run", "--detach=maybe", "--", "true"}, `--detach "maybe" is neither true nor false`},
	} {
		got := said(t, c.args...)
		if !strings.Contains(got, c.want) || strings.Contains(got, "strconv") {
			t.Errorf("%q says %q, want %q", c.args, got, c.want)
		}
	}
	t.Setenv("ROTA_REQUEST_TIMEOUT", "soon")
	if got := said(t, "node", "list"); !strings.Contains(got, `ROTA_REQUEST_TIMEOUT: --request-timeout "soon" is not a duration`) {
		t.Errorf("says %q", got)
	}
}

func TestVersionIsAFlagToo(t *testing.T) {
	var out bytes.Buffer
	if code := run(context.Background(), []string{"--version"}, &out, &out); code != exitOK || !strings.HasPrefix(out.String(), "rota "+Version+", commit ") {
		t.Errorf("exit code %d, says %q", code, out.String())
	}
}
