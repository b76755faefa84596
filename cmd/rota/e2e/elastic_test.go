package e2e

import (
	"context"
	"strings"
	"testing"

	rotav1 "rota/api/gen/rota/v1"
	"rota/cmd/internal/devcluster"
)

// suite is a real parallel program: half a second that cannot be divided, and
// eight pieces of 0.3 s for as many workers as it has cores. It says how many.
func suite() *rotav1.ActionSpec {
	return &rotav1.ActionSpec{
		Class:     "suite",
		Command:   command("sh", "-c", "echo {{cores}}; sleep 0.5; seq 8 | xargs -P {{cores}} -I{} sleep 0.3"),
		Resources: &rotav1.Resources{MaxCores: 4},
	}
}

// widths runs suites that are submitted together, and returns their cores.
func (w *world) widths(n int) string {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), patience)
	defer cancel()
	specs := make([]*rotav1.ActionSpec, n)
	for i := range specs {
		specs[i] = suite()
	}
	ids, err := w.api.Submit(ctx, specs...)
	if err != nil {
		w.Fatal(err)
	}
	var out []string
	for _, id := range ids {
		a, err := w.api.Wait(ctx, id)
		if err != nil || a.State != rotav1.ActionState_ACTION_STATE_SUCCEEDED {
			w.Fatalf("action %d: %v, %v", id, a, err)
		}
		out = append(out, strings.TrimSpace(string(a.Result.StdoutTail)))
	}
	return strings.Join(out, " ")
}

// TestCoresByALearnedCurve: nobody says how long a suite takes. The first ones
// take what is free, then half of it is tried, and from then on one that is alone
// has the whole node, and two that come together share it.
func TestCoresByALearnedCurve(t *testing.T) {
	t.Parallel()
	w := newWorld(t, patient, devcluster.Config{Servers: 1, Agents: 1})
	for _, step := range []struct {
		together int
		want     string
		why      string
	}{
		{1, "4", "nothing is known"},
		{1, "4", "one attempt is no experience"},
		{1, "4", "nor are two"},
		{1, "2", "half of it is tried"},
		{1, "4", "the node is idle, and more cores are known to help"},
		{2, "2 2", "two share the node"},
	} {
		if got := w.widths(step.together); got != step.want {
			t.Fatalf("%d together got %s cores, want %s: %s", step.together, got, step.want, step.why)
		}
	}
	resp, err := w.api.Classes.GetClass(t.Context(), &rotav1.GetClassRequest{Name: "suite"})
	if err != nil || len(resp.Class.Widths) != 2 {
		t.Fatalf("class %v, %v", resp, err)
	}
}
