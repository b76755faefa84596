package model

import (
	"testing"

	"pgregory.net/rapid"

	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
)

// The model and the state machine allow the same labels, and write them alike.
func TestLabelsAreTheSame(t *testing.T) {
	key := rapid.OneOf(rapid.StringOfN(rapid.RuneFrom([]rune("aB0-_./=\n é")), 0, 4, -1), rapid.StringOfN(rapid.RuneFrom([]rune("ab/")), 126, 130, -1))
	value := rapid.OneOf(rapid.StringOfN(rapid.RuneFrom([]rune("a=\n\x7f é\t,")), 0, 4, -1), rapid.StringOfN(rapid.RuneFrom([]rune("a")), 254, 258, -1), rapid.Just("\xff"))
	rapid.Check(t, func(t *rapid.T) {
		var labels []*logv1.Label
		var rows []state.Label
		for range rapid.IntRange(0, 3).Draw(t, "n") {
			l := state.Label{Key: key.Draw(t, "key"), Value: value.Draw(t, "value")}
			rows, labels = append(rows, l), append(labels, &logv1.Label{Key: l.Key, Value: l.Value})
		}
		text, err := state.JoinLabels(rows)
		if allowed := labelsAllowed(labels); allowed != (err == nil) {
			t.Fatalf("%q: the model allows them: %v; the state machine says %v", rows, allowed, err)
		}
		if err == nil && string(text) != labelsText(labels) {
			t.Fatalf("%q are %q, the model says %q", rows, text, labelsText(labels))
		}
	})
}
