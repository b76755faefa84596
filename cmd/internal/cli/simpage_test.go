package cli

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// evaluationTables are the tables of the evaluation's page by their commands.
func evaluationTables(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile("../../../docs/evaluation.md")
	if err != nil {
		t.Fatal(err)
	}
	tables := make(map[string]string)
	for _, m := range regexp.MustCompile(`(?s)<!-- (rota sim [^\n]*) -->\n\n(.*?)\n<!-- end -->`).FindAllStringSubmatch(string(text), -1) {
		tables[m[1]] = m[2]
	}
	return tables
}

// TestTheEvaluationIsOfThisCode: two small tables, of cores and of GPUs, are what their commands
// write today. Whatever changes them changes the others too: run make evaluate.
func TestTheEvaluationIsOfThisCode(t *testing.T) {
	tables := evaluationTables(t)
	for _, command := range []string{
		"rota sim compare coding --batch 128 --policies rota,pod,fixed-4,equal",
		"rota sim compare mopd --batch 1024 --sweep baseline.static.0.replicas=1,2,4,8",
	} {
		now, _ := simulated(t, exitOK, append(strings.Fields(command)[2:], "--markdown")...)
		if page := tables[command]; page != now {
			t.Errorf("%s writes\n%s\nand docs/evaluation.md has\n%s\nRun make evaluate, and correct the text around its tables.", command, now, page)
		}
	}
}
