package cli

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"rota/api/client"
	rotav1 "rota/api/gen/rota/v1"
)

const statePrefix = "ACTION_STATE_"

func stateWords() []string {
	var list []string
	for n, name := range rotav1.ActionState_name {
		if n != 0 {
			list = append(list, strings.ToLower(strings.TrimPrefix(name, statePrefix)))
		}
	}
	slices.Sort(list)
	return list
}

func parseStates(texts []string) ([]rotav1.ActionState, error) {
	var states []rotav1.ActionState
	for _, text := range texts {
		n, ok := rotav1.ActionState_value[statePrefix+strings.ToUpper(text)]
		if !ok || n == 0 {
			return nil, usageErrorf("unknown state %q; states are %s", text, strings.Join(stateWords(), ", "))
		}
		states = append(states, rotav1.ActionState(n))
	}
	return states, nil
}

// stateText is the state in a word, with a remark if a cancel is under way.
func stateText(act *rotav1.Action) string {
	word := enumWord(act.State, statePrefix)
	if act.CancelRequested && !client.Final(act.State) {
		return word + " (canceling)"
	}
	return word
}

// resultText says in a few words how an action ended.
func resultText(act *rotav1.Action) string {
	r := act.GetResult()
	var text string
	switch r.GetReason() {
	case rotav1.EndReason_END_REASON_UNSPECIFIED:
		text = enumWord(act.State, statePrefix)
	case rotav1.EndReason_END_REASON_EXITED:
		text = fmt.Sprintf("exit code %d", r.ExitCode)
	case rotav1.EndReason_END_REASON_SIGNALED:
		if m := r.GetMessage(); m != "" {
			return m // it names the signal
		}
		text = fmt.Sprintf("ended by signal %d", r.Signal)
	default:
		text = strings.ReplaceAll(enumWord(r.Reason, "END_REASON_"), "_", " ")
	}
	if m := r.GetMessage(); m != "" {
		text += ": " + m
	}
	return text
}

// exitText is the exit code; empty unless the process exited.
func exitText(act *rotav1.Action) string {
	if act.GetResult().GetReason() != rotav1.EndReason_END_REASON_EXITED {
		return ""
	}
	return strconv.Itoa(int(act.Result.ExitCode))
}

func execText(act *rotav1.Action) string {
	if act.GetResult().GetExecDuration() == nil {
		return ""
	}
	return formatDuration(act.Result.ExecDuration.AsDuration())
}

// commandText is the command as one would type it, or the HTTP call, cut to width
// if that is not 0.
func commandText(act *rotav1.Action, width int) string {
	quoted := make([]string, 0, 8)
	for _, arg := range act.GetSpec().GetCommand().GetArgv() {
		quoted = append(quoted, shellWord(arg))
	}
	text := strings.Join(quoted, " ")
	if call := act.GetSpec().GetHttp(); call != nil {
		text = callText(call)
	}
	if runes := []rune(text); width > 0 && len(runes) > width {
		text = string(runes[:width-3]) + "..."
	}
	return text
}

// shellWord quotes an argument so that a shell reads it as it was.
func shellWord(arg string) string {
	if printable(arg) != arg {
		return "$'" + shellEscapes(arg) + "'"
	}
	if plainWord.MatchString(arg) {
		return arg
	}
	return "'" + strings.ReplaceAll(arg, "'", `'\''`) + "'"
}

// shellEscapes writes an argument for $'...'. Bytes are the same in every locale, and \u is not.
func shellEscapes(arg string) string {
	var b strings.Builder
	for len(arg) > 0 {
		_, size := utf8.DecodeRuneInString(arg)
		char := arg[:size]
		switch escaped := printable(char); {
		case char == `\` || char == `'`:
			b.WriteString(`\` + char)
		case escaped == char || size == 1:
			b.WriteString(escaped)
		default:
			for i := range size {
				fmt.Fprintf(&b, `\x%02x`, char[i])
			}
		}
		arg = arg[size:]
	}
	return b.String()
}

// plainWord is what no shell changes. {{cores}} and the like stand in many commands, and none expands them.
var plainWord = regexp.MustCompile(`^(?:[\pL\pN_@%+=:,./-]|\{\{[a-z]+\}\})+$`)

// eventText is one line of `rota action watch`.
func eventText(e *rotav1.ActionEvent) string {
	text := fmt.Sprintf("%s  %d  action %d  %s", formatTime(e.Time), e.Revision, e.ActionId, enumWord(e.State, statePrefix))
	if e.Node != "" {
		text += fmt.Sprintf("  attempt %d on %s", e.Attempt, e.Node)
	}
	switch {
	case !client.Final(e.State):
	case e.Reason == rotav1.EndReason_END_REASON_EXITED:
		text += fmt.Sprintf("  exit code %d", e.ExitCode)
	case e.Reason != 0:
		text += "  " + strings.ReplaceAll(enumWord(e.Reason, "END_REASON_"), "_", " ")
	}
	return text
}
