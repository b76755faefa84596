package cli

import (
	"bytes"
	"context"
	"errors"
	"os/exec"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"rota/api/client"
	logv1 "rota/api/gen/log/v1"
	rotav1 "rota/api/gen/rota/v1"
)

func someLedger() *rotav1.GetLedgerResponse {
	return &rotav1.GetLedgerResponse{
		Slot: durationpb.New(time.Second), NowSlot: 1000, Slots: 120,
		Groups: []*rotav1.LedgerGroup{
			{Group: &rotav1.NodeGroup{Name: "train-a", Holder: "default/a/actor", TurnId: 7}, Intervals: []*rotav1.ReservedInterval{
				{Job: "default/a", Start: 1000, End: 1020}, {Job: "default/b", Start: 1021, End: 1040},
			}},
			{Group: &rotav1.NodeGroup{Name: "b", Halted: "a failure"}},
		},
	}
}

// TestDrawLedger: a character is what has most of its time, if that is more than half.
func TestDrawLedger(t *testing.T) {
	var out bytes.Buffer
	drawLedger(&out, someLedger(), func(letters string) string { return letters })
	lines := strings.Split(out.String(), "\n")
	for i, want := range map[int]string{
		0: "slots of 1s, a character is 2s",
		1: "+2m0s",
		2: "train-a |" + strings.Repeat("A", 10) + "." + strings.Repeat("B", 9) + strings.Repeat(".", 40) + "| default/a/actor (turn 7)",
		3: "b       |" + strings.Repeat(".", 60) + "| halted: a failure",
		4: "A  default/a",
		5: "B  default/b",
	} {
		if !strings.Contains(lines[i], want) {
			t.Errorf("line %d is %q, want %q", i, lines[i], want)
		}
	}
}

// TestColoursOfTheLedger: each job has its own, on top of its letter.
func TestColoursOfTheLedger(t *testing.T) {
	var out, plain bytes.Buffer
	drawLedger(&out, someLedger(), colourLetters)
	lines := strings.Split(out.String(), "\n")
	a, b := "\033[32m", "\033[33m"
	const end = "\033[0m"
	for i, want := range map[int]string{
		2: "train-a |" + a + strings.Repeat("A", 10) + end + "." + b + strings.Repeat("B", 9) + end + strings.Repeat(".", 40) + "| default/a/actor (turn 7)",
		3: "b       |" + strings.Repeat(".", 60) + "| halted: a failure",
		4: a + "A" + end + "  default/a",
		5: b + "B" + end + "  default/b",
	} {
		if lines[i] != want {
			t.Errorf("line %d is %q, want %q", i, lines[i], want)
		}
	}
	drawLedger(&plain, someLedger(), func(letters string) string { return letters })
	if got := strings.NewReplacer(a, "", b, "", end, "").Replace(out.String()); got != plain.String() {
		t.Errorf("without colours it is\n%swant\n%s", got, plain.String())
	}
}

func TestParseSegment(t *testing.T) {
	s, err := parseSegment("2m:30s:4", 8)
	if err != nil || s.Offset.AsDuration() != 2*time.Minute || s.Length.AsDuration() != 30*time.Second || s.Nodes != 4 {
		t.Errorf("%v, %v", s, err)
	}
	if s, err := parseSegment("0s:90s", 8); err != nil || s.Nodes != 8 {
		t.Errorf("%v, %v", s, err)
	}
	for _, text := range []string{"", "1s", "1s:2", "1s:2s:0", "1s:2s:3:4", "a:2s"} {
		if s, err := parseSegment(text, 8); err == nil {
			t.Errorf("%q is %v, want an error", text, s)
		}
	}
}

func TestLedgerFlags(t *testing.T) {
	f := ledgerFlags{slot: 2 * time.Second, slots: 100, stretch: "0.1", duty: "1", policy: "pack"}
	s := &logv1.Settings{}
	if err := f.apply(s); err != nil {
		t.Fatal(err)
	}
	if s.LedgerSlotNs != 2e9 || s.LedgerSlots != 100 || s.LedgerStretchPpm != 100_000 || s.LedgerDutyPpm != 1_000_000 || s.LedgerPolicy != uint32(rotav1.PlacementPolicy_PLACEMENT_POLICY_PACK) {
		t.Errorf("settings %v", s)
	}
	if err := (&ledgerFlags{}).apply(s); err != nil || s.LedgerStretchPpm != 0 {
		t.Errorf("defaults %v, %v", s, err)
	}
	for _, f := range []ledgerFlags{{slots: -1}, {stretch: "2"}, {duty: "NaN"}, {duty: "0"}, {policy: "gone"}, {policy: "unspecified"}} {
		if err := f.apply(&logv1.Settings{}); exitCode(err) != exitUsage {
			t.Errorf("%+v: %v", f, err)
		}
	}
}

// TestTurnEnds: the end of the command is the exit code, but for what rota itself is to
// blame for.
func TestTurnEnds(t *testing.T) {
	exited := exec.Command("sh", "-c", "exit 7").Run()
	killed := exec.Command("sh", "-c", "kill -9 $$").Run()
	missing := exec.Command("/nonexistent/command").Run()
	interrupted, cancel := context.WithCancel(t.Context())
	cancel()
	for _, tt := range []struct {
		ctx  context.Context
		err  error
		want int
	}{
		{t.Context(), nil, 0}, {t.Context(), exited, 7}, {t.Context(), killed, 137},
		{t.Context(), errors.Join(killed, &client.LostError{Turn: 1}), exitTurnLost}, {interrupted, killed, exitInterrupted},
		{t.Context(), errors.New("no"), exitRota}, {t.Context(), missing, exitCannotStart},
	} {
		if got := exitCode(turnEnd(tt.ctx, tt.err, "")); got != tt.want {
			t.Errorf("%v: exit code %d, want %d", tt.err, got, tt.want)
		}
	}
}
