package dst

import (
	"fmt"
	"strings"

	logv1 "rota/api/gen/log/v1"
)

// describe tells an entry, if the story is kept.
func (w *World) describe(index uint64, e *logv1.Entry, results []*logv1.Result) {
	if !w.keep {
		return
	}
	for i, c := range e.Commands {
		w.tell("entry %d: %s -> %s", index, commandText(c), resultText(results[i]))
	}
}

func commandText(c *logv1.Command) string {
	text := fmt.Sprint(c)
	if len(text) > 200 {
		text = strings.ToValidUTF8(text[:200], "") + "..."
	}
	return strings.Join(strings.Fields(text), " ")
}

func resultText(r *logv1.Result) string {
	if r.Refusal != nil {
		return "refused, " + r.Refusal.Reason
	}
	return strings.Join(strings.Fields(fmt.Sprint(r)), " ")
}
