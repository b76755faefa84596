package cli

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"strings"
	"testing"

	rotav1 "rota/api/gen/rota/v1"
)

// hostileText retitles a window, forges a field, moves the cursor with an 8-bit control
// character, hides what follows and turns its direction.
const hostileText = "a\x1b]0;owned\a\nstate  succeeded\r\u009b2Jb\x7f\u202ec\u2028d"

func TestTerminalsObeyNothingThatOthersChose(t *testing.T) {
	var out, errOut bytes.Buffer
	a := &app{out: &out, err: &errOut, settings: settings{output: "table"}}
	act := &rotav1.Action{
		Id: 1, Spec: &rotav1.ActionSpec{Name: hostileText, Command: &rotav1.Command{Argv: []string{"echo", hostileText}}},
		State: rotav1.ActionState_ACTION_STATE_FAILED, Node: hostileText,
		Result: &rotav1.ActionResult{Reason: rotav1.EndReason_END_REASON_SIGNALED, Signal: 9,
			Message: hostileText, StdoutTail: []byte(hostileText + "\xff"), StderrTail: []byte("\n" + hostileText)},
	}
	node := &rotav1.Node{Name: "n1", Runtime: hostileText, Address: hostileText, Labels: map[string]string{"l": hostileText}}
	for _, err := range []error{
		a.printFields(act, actionFields(act)),
		a.print(act, []string{"id", "command"}, [][]string{actionRow(act)}),
		a.printNode(node),
		a.printLine(act, eventText(&rotav1.ActionEvent{Node: hostileText})),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	a.say("waiting for %s", hostileText)
	a.settings.output = "json"
	if err := a.print(act, nil, nil); err != nil {
		t.Fatal(err)
	}
	for _, r := range out.String() + errOut.String() {
		if r != '\n' && obeyed(r) || r == '\uFFFD' {
			t.Fatalf("%q reaches the terminal in\n%q", r, out.String()+errOut.String())
		}
	}
	// Only the field itself may begin a line with its name.
	if n := strings.Count(out.String(), "\nstate "); n != 2 {
		t.Errorf("%d lines say what the state is, want 2:\n%s", n, out.String())
	}
}

func TestJSONMeansTheSameWhenItIsPrintable(t *testing.T) {
	raw, err := json.Marshal(hostileText)
	if err != nil {
		t.Fatal(err)
	}
	var back string
	if err := json.Unmarshal(printableJSON(raw), &back); err != nil || back != hostileText {
		t.Errorf("%q, %v", back, err)
	}
}

func TestShellsReadWordsAsTheyWere(t *testing.T) {
	for _, word := range []string{"plain", "", "two words", "it's", `back\slash`, "$HOME", "`id`", "a\nb", "\x1b[31m'\\", "#", "{{cores}}",
		"~", "~root/x", "{a,b}", "{1..3}", "[a-z]", "/[tT]mp", "!1", "a^b", "=ls", "x={{a,b}}", "--flag=value", "\u00e4", "a\tb", "\xff", "%1", "\u2028a"} {
		out, err := exec.Command("bash", "-c", "printf %s "+shellWord(word)).Output()
		if err != nil || string(out) != word {
			t.Errorf("%q became %q, %v", word, out, err)
		}
	}
}
