package rpc_test

import (
	"strings"
	"testing"

	"connectrpc.com/connect"

	rotav1 "rota/api/gen/rota/v1"
)

// TestAffinities: what is said of a class decides where its trajectories go, and is listed.
func TestAffinities(t *testing.T) {
	w := newWorld(t)
	for name, hardware := range map[string]string{"a": "h800", "b": "h20"} {
		spec := workerSpec(name, 10)
		spec.Hardware = hardware
		w.registerWorker(spec)
	}
	for _, a := range []*rotav1.Affinity{nil, {Policy: "math"}, {Policy: "math", Hardware: []string{"h20", "h20"}}, {Policy: "math", CostPercent: 101}, {Policy: "math", TaskClass: "gsm\x00", CostPercent: 1}, {Policy: "math", Hardware: []string{"h\x00"}}} {
		if _, err := w.workers().SetAffinity(t.Context(), &rotav1.SetAffinityRequest{Affinity: a}); connect.CodeOf(err) != connect.CodeInvalidArgument {
			t.Errorf("%v: %v", a, err)
		}
	}
	if _, err := w.workers().SetAffinity(t.Context(), &rotav1.SetAffinityRequest{Affinity: &rotav1.Affinity{Policy: "math", TaskClass: "gsm", Hardware: []string{"h20"}}}); err != nil {
		t.Fatal(err)
	}
	g := w.generating().Generation
	if g.GetWorker() != "b" || !strings.Contains(g.GetReason(), "the affinity of its task class") {
		t.Errorf("the trajectory is at %q: %s", g.GetWorker(), g.GetReason())
	}
	list, err := w.workers().ListAffinities(t.Context(), &rotav1.ListAffinitiesRequest{Policy: "math"})
	if err != nil || len(list.Affinities) != 1 || !list.Affinities[0].Set || list.Affinities[0].Affinity.Hardware[0] != "h20" {
		t.Errorf("%v, %v", list, err)
	}
	remove := &rotav1.RemoveAffinityRequest{Policy: "math", TaskClass: "gsm"}
	if _, err := w.workers().RemoveAffinity(t.Context(), remove); err != nil {
		t.Fatal(err)
	}
	if _, err := w.workers().RemoveAffinity(t.Context(), remove); connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("removed twice: %v", err)
	}
}
