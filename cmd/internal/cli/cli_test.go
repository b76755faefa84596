package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"rota/api/client"
	rotav1 "rota/api/gen/rota/v1"
)

func TestParseSize(t *testing.T) {
	for _, tt := range []struct {
		text string
		want uint64
	}{
		{"0", 0}, {"1048576", 1 << 20}, {"512MiB", 512 << 20}, {"2GB", 2e9}, {"1.5GiB", 3 << 29},
		{"64K", 64 << 10}, {" 3 GiB ", 3 << 30}, {"10B", 10}, {"2PiB", 2 << 50},
	} {
		got, err := parseSize(tt.text)
		if err != nil || got != tt.want {
			t.Errorf("parseSize(%q) = %d, %v; want %d", tt.text, got, err, tt.want)
		}
	}
	for _, text := range []string{"", "MiB", "-1", "12XB", "NaN", "1e30", "18446744073709551615KiB"} {
		if got, err := parseSize(text); err == nil {
			t.Errorf("parseSize(%q) = %d, want an error", text, got)
		}
	}
}

func TestFormatCPUs(t *testing.T) {
	for _, tt := range []struct {
		cpus []uint32
		want string
	}{
		{nil, ""}, {[]uint32{3}, "3"}, {[]uint32{0, 1, 2, 5}, "0-2,5"}, {[]uint32{1, 3, 4}, "1,3-4"},
	} {
		if got := formatCPUs(tt.cpus); got != tt.want {
			t.Errorf("formatCPUs(%v) = %q, want %q", tt.cpus, got, tt.want)
		}
	}
}

func TestAgesAreNotNegative(t *testing.T) {
	early, late := timestamppb.New(time.Unix(100, 0)), timestamppb.New(time.Unix(102, 0))
	if got := formatAge(early, late); got != "2s" {
		t.Errorf("got %q", got)
	}
	if got := formatAge(late, early); got != "0s" {
		t.Errorf("backwards: got %q", got)
	}
}

func TestExitCodes(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want int
	}{
		{nil, exitOK},
		{errors.New("no"), exitError},
		{usageErrorf("no"), exitUsage},
		{connect.NewError(connect.CodeInvalidArgument, errors.New("no")), exitUsage},
		{connect.NewError(connect.CodeNotFound, errors.New("no")), exitNotFound},
		{connect.NewError(connect.CodeUnavailable, errors.New("no")), exitUnavailable},
		{connect.NewError(connect.CodeResourceExhausted, errors.New("no")), exitUnavailable},
		{connect.NewError(connect.CodeFailedPrecondition, errors.New("no")), exitError},
		{runFailed(connect.NewError(connect.CodeNotFound, errors.New("no"))), exitRota},
		{runFailed(usageErrorf("no")), exitUsage},
		{runFailed(context.Canceled), exitInterrupted},
	} {
		if got := exitCode(tt.err); got != tt.want {
			t.Errorf("exitCode(%v) = %d, want %d", tt.err, got, tt.want)
		}
	}
}

// An error of a server is told in the server's own sentence.
func TestDescribeUsesTheServersSentence(t *testing.T) {
	err := connect.NewError(connect.CodeNotFound, errors.New("action_not_found"))
	detail, detailErr := connect.NewErrorDetail(&rotav1.ErrorDetail{Message: "there is no action 7; it may have been retired"})
	if detailErr != nil {
		t.Fatal(detailErr)
	}
	err.AddDetail(detail)
	if got := describe(err, "a:1"); got != "there is no action 7; it may have been retired" {
		t.Errorf("describe = %q", got)
	}
}

func TestRunEndPassesTheExitOn(t *testing.T) {
	for _, tt := range []struct {
		name   string
		state  rotav1.ActionState
		result *rotav1.ActionResult
		want   int
	}{
		{"success", rotav1.ActionState_ACTION_STATE_SUCCEEDED, &rotav1.ActionResult{Reason: rotav1.EndReason_END_REASON_EXITED}, 0},
		{"its own code", rotav1.ActionState_ACTION_STATE_FAILED, &rotav1.ActionResult{Reason: rotav1.EndReason_END_REASON_EXITED, ExitCode: 7}, 7},
		{"signal", rotav1.ActionState_ACTION_STATE_FAILED, &rotav1.ActionResult{Reason: rotav1.EndReason_END_REASON_SIGNALED, Signal: 15}, 143},
		{"out of memory", rotav1.ActionState_ACTION_STATE_FAILED, &rotav1.ActionResult{Reason: rotav1.EndReason_END_REASON_OUT_OF_MEMORY}, 137},
		{"time limit", rotav1.ActionState_ACTION_STATE_FAILED, &rotav1.ActionResult{Reason: rotav1.EndReason_END_REASON_TIMEOUT}, 124},
		{"no such program", rotav1.ActionState_ACTION_STATE_FAILED, &rotav1.ActionResult{Reason: rotav1.EndReason_END_REASON_START_FAILED}, 126},
		{"canceled", rotav1.ActionState_ACTION_STATE_CANCELED, &rotav1.ActionResult{Reason: rotav1.EndReason_END_REASON_CANCELED}, 125},
		{"lost", rotav1.ActionState_ACTION_STATE_LOST, &rotav1.ActionResult{Reason: rotav1.EndReason_END_REASON_NODE_LOST}, 125},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := (&app{}).runEnd(&rotav1.Action{Id: 1, State: tt.state, Result: tt.result})
			if got := exitCode(err); got != tt.want {
				t.Errorf("exit code %d (%v), want %d", got, err, tt.want)
			}
		})
	}
}

// settingsOf runs a command that needs no server and returns its settings.
func settingsOf(t *testing.T, args ...string) settings {
	t.Helper()
	var out, errOut bytes.Buffer
	a := &app{out: &out, err: &errOut}
	root := a.root()
	root.SetArgs(append([]string{"version"}, args...))
	if err := root.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	return a.settings
}

func TestSettingsPrecedence(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.json")
	writeFile(t, file, `{"addr": ["file:1", "file:2"], "namespace": "from-file", "request-timeout": "3s"}`)
	t.Setenv("ROTA_CONFIG", file)
	t.Setenv("ROTA_NAMESPACE", "from-env")

	s := settingsOf(t)
	if s.addr != "file:1,file:2" || s.namespace != "from-env" || s.timeout.Seconds() != 3 {
		t.Errorf("settings %+v: want the file's address and timeout, the variable's namespace", s)
	}
	if s := settingsOf(t, "--namespace", "from-flag"); s.namespace != "from-flag" {
		t.Errorf("namespace %q: a flag must win", s.namespace)
	}
}

// What an action is told about itself must not leak into the actions that it
// submits in turn.
func TestVariablesOfAnActionAreNoFlags(t *testing.T) {
	t.Setenv("ROTA_CORES", "16")
	t.Setenv("ROTA_FENCING_TOKEN", "1.1.1")
	t.Setenv("ROTA_ADDR", "127.0.0.1:1")
	var out, errOut bytes.Buffer
	a := &app{out: &out, err: &errOut}
	root := a.root()
	cmd, _, err := root.Find([]string{"run"})
	if err != nil {
		t.Fatal(err)
	}
	root.SetArgs([]string{"run", "--", "true"})
	_ = root.ExecuteContext(t.Context()) // nobody listens there
	if got := cmd.Flag("cores").Value.String(); got != "1" {
		t.Errorf("--cores is %s, taken from ROTA_CORES", got)
	}
}

func TestRunTakesACommandOrACall(t *testing.T) {
	file := filepath.Join(t.TempDir(), "body")
	writeFile(t, file, "from a file")
	for _, c := range []struct {
		args []string
		want string // of the call, or of the error
	}{
		{[]string{"--url", "http://e/x"}, `url:"http://e/x"`},
		{[]string{"--url", "http://e", "--method", "PUT", "--data", "d", "--header", "A: b:c", "--accept", "200,404"},
			`method:"PUT" url:"http://e" headers:{key:"A" value:"b:c"} body:"d" accept:200 accept:404`},
		{[]string{"--url", "http://e", "--data", "@" + file}, `url:"http://e" body:"from a file"`},
		{[]string{"--url", "http://e", "--data", "@" + file + "-gone"}, "no such file"},
		{[]string{"--url", "http://e", "--header", "A"}, `--header "A" is not NAME: VALUE`},
		{[]string{"--url", "http://e", "--accept", "600"}, "600 is not a status"},
		{[]string{"--url", "http://e", "--", "true"}, "leave out one of them"},
		{[]string{"--url", "http://e", "--env", "A=B"}, "--env and --dir are for commands"},
		{[]string{"--method", "PUT", "--", "true"}, "give its --url"},
		{nil, "nothing to run"},
	} {
		var f runFlags
		cmd := &cobra.Command{}
		f.addTo(cmd)
		if err := cmd.ParseFlags(c.args); err != nil {
			t.Fatal(err)
		}
		var got string
		err := f.checkWork(cmd.Flags().Args())
		if err == nil {
			var spec *rotav1.ActionSpec
			if spec, err = f.spec(cmd.Flags().Args()); err == nil {
				// The text has spaces that are random.
				got = strings.Join(strings.Fields(spec.GetHttp().String()), " ")
			}
		}
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, c.want) {
			t.Errorf("%q: %s, want %s", c.args, got, c.want)
		}
	}
}

func TestACallIsShownAsOne(t *testing.T) {
	act := &rotav1.Action{Spec: &rotav1.ActionSpec{Http: &rotav1.HttpCall{Url: "http://e/x?y", Body: []byte("b")}}}
	if got := commandText(act, 0); got != "POST http://e/x?y" {
		t.Errorf("shown as %q", got)
	}
	if got := commandText(act, 10); got != "POST ht..." {
		t.Errorf("cut to %q", got)
	}
}

// Every command that a user sees says how it is used.
func TestEveryCommandHasAnExample(t *testing.T) {
	root := (&app{out: &bytes.Buffer{}}).root()
	for _, cmd := range allCommands(root) {
		if cmd.Hidden || cmd.HasSubCommands() || cmd.IsAdditionalHelpTopicCommand() {
			continue
		}
		if cmd.Short == "" || !strings.Contains(cmd.Example, "rota ") && !strings.Contains(cmd.Example, "make ") {
			t.Errorf("%s: no short help or no example", cmd.CommandPath())
		}
	}
}

// A flag of a command that has the name of a global one hides it: the global one could not be given.
func TestNoFlagHidesAGlobalOne(t *testing.T) {
	root := (&app{out: &bytes.Buffer{}}).root()
	for _, cmd := range allCommands(root) {
		if cmd == root || cmd.DisableFlagParsing {
			continue
		}
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if root.PersistentFlags().Lookup(f.Name) != nil {
				t.Errorf("%s --%s hides the global flag", cmd.CommandPath(), f.Name)
			}
		})
	}
}

func TestNamespacesHaveAHeaderForEachCell(t *testing.T) {
	fields := namespaceFields(&rotav1.Namespace{})
	if len(fields) != len(namespaceHeader) {
		t.Fatalf("%d cells, %d headers", len(fields), len(namespaceHeader))
	}
	for i, f := range fields {
		if f.name != namespaceHeader[i] {
			t.Errorf("%s is above %s", namespaceHeader[i], f.name)
		}
	}
}

func allCommands(cmd *cobra.Command) []*cobra.Command {
	list := []*cobra.Command{cmd}
	for _, sub := range cmd.Commands() {
		list = append(list, allCommands(sub)...)
	}
	return list
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// What is not safe is refused before anything is written, which also says that
// the flag got to where it counts.
func TestAServerRefusesUnsafeFlags(t *testing.T) {
	for _, c := range []struct{ flag, value, want string }{
		{"--trailing-logs", "5", "TrailingLogs (5)"},
		{"--disk-hang-limit", "20ms", "DiskHangLimit (20ms)"},
	} {
		var out, errOut bytes.Buffer
		root := (&app{out: &out, err: &errOut}).root()
		args := []string{"server", "--id", "s1", "--data-dir", filepath.Join(t.TempDir(), "data"), "--listen", "127.0.0.1:0", "--gossip", ""}
		root.SetArgs(append(args, c.flag, c.value))
		err := root.ExecuteContext(t.Context())
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %s: %v", c.flag, c.value, err)
		}
	}
}

func TestDomainOfATrajectory(t *testing.T) {
	for want, m := range map[string]*rotav1.Trajectory{
		"":       {Node: "n1"},
		"zone":   {SpreadGroup: "g", SpreadLabel: "zone"},
		"zone=a": {SpreadGroup: "g", SpreadLabel: "zone", SpreadDomain: "a", Node: "n1"},
		"zone=":  {SpreadGroup: "g", SpreadLabel: "zone", Node: "n2"},
	} {
		if got := spreadDomain(m); got != want {
			t.Errorf("%v is shown as %q, want %q", m, got, want)
		}
	}
}

// In an outage people look: whatever shows what the cluster has can be asked of one
// server.
func TestWhateverReadsTakesStale(t *testing.T) {
	reads := regexp.MustCompile(`^(get|list|list-peers|show|explain|profile)$`)
	n := 0
	for _, cmd := range allCommands((&app{}).root()) {
		path := cmd.CommandPath()
		if !reads.MatchString(cmd.Name()) || strings.HasPrefix(path, "rota sim") || strings.HasPrefix(path, "rota state ") ||
			strings.HasPrefix(path, "rota tls ") || path == "rota image list" || path == "rota batch get" {
			continue // simulations, files, and what asks the agent of this machine, read no cluster; a batch is taken
		}
		n++
		if cmd.Flags().Lookup("stale") == nil {
			t.Errorf("%s has no --stale", cmd.CommandPath())
		}
	}
	if n < 15 {
		t.Errorf("only %d commands read", n)
	}
	// Each of their requests has the field.
	for _, req := range []proto.Message{
		&rotav1.GetActionRequest{}, &rotav1.ListActionsRequest{}, &rotav1.GetClassRequest{}, &rotav1.ListClassesRequest{},
		&rotav1.GetJobRequest{}, &rotav1.ListJobsRequest{}, &rotav1.GetLedgerRequest{}, &rotav1.GetNodeRequest{}, &rotav1.ListNodesRequest{},
		&rotav1.ListNodeGroupsRequest{}, &rotav1.ListNamespacesRequest{}, &rotav1.ListPoolsRequest{}, &rotav1.ListPeersRequest{},
		&rotav1.GetQuotaRequest{}, &rotav1.ListQuotasRequest{}, &rotav1.ListFilesRequest{}, &rotav1.StatFileRequest{}, &rotav1.ReadFileRequest{}, &rotav1.GetTrajectoryRequest{}, &rotav1.ListTrajectoriesRequest{},
		&rotav1.GetTurnRequest{}, &rotav1.ListTurnsRequest{},
	} {
		allowStale(req)
		if stale, ok := req.(interface{ GetAllowStale() bool }); !ok || !stale.GetAllowStale() {
			t.Errorf("%T has no allow_stale", req)
		}
	}
}

func TestErrorsSayWhatToDo(t *testing.T) {
	unusable := &client.AddrError{Addr: "a:1", Why: "uses TLS, and this client does not"}
	err := fmt.Errorf("get action 7: %w", unusable)
	if got := describe(err, "a:1"); got != unusable.Error() || exitCode(err) != exitError {
		t.Errorf("describe = %q, exit code %d", got, exitCode(err))
	}
	ce := connect.NewError(connect.CodeUnavailable, errors.New("no_quorum"))
	detail, detailErr := connect.NewErrorDetail(&rotav1.ErrorDetail{Message: "no quorum: 1 of 3 voters answers"})
	if detailErr != nil {
		t.Fatal(detailErr)
	}
	ce.AddDetail(detail)
	got := describe(fmt.Errorf("%w: %w", client.ErrUnknownOutcome, ce), "a:1")
	if !strings.HasPrefix(got, "no quorum: 1 of 3 voters answers\n") || !strings.Contains(got, "may have been carried out") {
		t.Errorf("describe = %q", got)
	}
}

func TestEndsAreSaidOnce(t *testing.T) {
	for _, c := range []struct {
		result *rotav1.ActionResult
		want   string
	}{
		{&rotav1.ActionResult{Reason: rotav1.EndReason_END_REASON_SIGNALED, Signal: 9, Message: "ended by signal 9 (killed)"}, "ended by signal 9 (killed)"},
		{&rotav1.ActionResult{Reason: rotav1.EndReason_END_REASON_SIGNALED, Signal: 9}, "ended by signal 9"},
		{&rotav1.ActionResult{Reason: rotav1.EndReason_END_REASON_EXITED, ExitCode: 1, Message: "the disk was low"}, "exit code 1: the disk was low"},
		{&rotav1.ActionResult{Reason: rotav1.EndReason_END_REASON_NODE_LOST}, "node lost"},
	} {
		if got := resultText(&rotav1.Action{Result: c.result}); got != c.want {
			t.Errorf("%v: %q, want %q", c.result, got, c.want)
		}
	}
	// What did not fail by itself says why, beside its exit code.
	a := &app{settings: settings{output: "table"}}
	act := &rotav1.Action{Id: 7, State: rotav1.ActionState_ACTION_STATE_FAILED, Result: &rotav1.ActionResult{
		Reason: rotav1.EndReason_END_REASON_EXITED, ExitCode: 3, Message: "the disk was low"}}
	if err := a.runEnd(act); exitCode(err) != 3 || err.Error() != "action 7: failed: exit code 3: the disk was low" {
		t.Errorf("%v with exit code %d", err, exitCode(err))
	}
}
