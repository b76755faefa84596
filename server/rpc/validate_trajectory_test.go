package rpc

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/types/known/durationpb"

	rotav1 "rota/api/gen/rota/v1"
)

func TestOpeningsAreRefused(t *testing.T) {
	for _, c := range []struct {
		name  string
		spoil func(*rotav1.OpenTrajectoryRequest)
		want  string // empty: nothing is wrong
	}{
		{"good", func(*rotav1.OpenTrajectoryRequest) {}, ""},
		{"without a group", func(r *rotav1.OpenTrajectoryRequest) { r.SpreadGroup, r.SpreadLabel = "", "" }, ""},
		{"name", func(r *rotav1.OpenTrajectoryRequest) { r.Name = strings.Repeat("n", 129) }, "name must have at most 128 bytes, has 129"},
		{"idle timeout", func(r *rotav1.OpenTrajectoryRequest) { r.IdleTimeout = durationpb.New(-1) }, "idle_timeout must not be negative"},
		{"group without a label", func(r *rotav1.OpenTrajectoryRequest) { r.SpreadLabel = "" }, "spread_label is required with a spread_group"},
		{"label without a group", func(r *rotav1.OpenTrajectoryRequest) { r.SpreadGroup = "" }, "spread_group is required with a spread_label"},
		{"long group", func(r *rotav1.OpenTrajectoryRequest) { r.SpreadGroup = strings.Repeat("g", 129) }, "spread_group must have at most 128 bytes, has 129"},
		{"long label", func(r *rotav1.OpenTrajectoryRequest) { r.SpreadLabel = strings.Repeat("l", 257) }, "spread_label must have at most 256 bytes, has 257"},
		{"objective", func(r *rotav1.OpenTrajectoryRequest) { r.Objective = 3 }, "objective is not an objective: 3"},
		{"variable", func(r *rotav1.OpenTrajectoryRequest) { r.Spec.Env = map[string]string{"ROTA_X": "1"} }, `spec.env has the key "ROTA_X"`},
		{"directory", func(r *rotav1.OpenTrajectoryRequest) { r.Spec.Dir = "../x" }, "spec.dir must be an absolute path"},
		{"large specification", func(r *rotav1.OpenTrajectoryRequest) {
			r.Spec.Env = map[string]string{"X": strings.Repeat("x", 4096)}
		}, "spec has 4"},
		{"group that is no text", func(r *rotav1.OpenTrajectoryRequest) { r.SpreadGroup = "\xff" }, "spread_group must be valid UTF-8"},
	} {
		r := &rotav1.OpenTrajectoryRequest{Name: "t", MemoryBytes: 1 << 20, SpreadGroup: "step 12", SpreadLabel: "zone",
			Spec: &rotav1.TrajectorySpec{Env: map[string]string{"CI": "1"}, Dir: "project"}}
		c.spoil(r)
		got := ""
		if err := checkOpen(r).err(); err != nil {
			got = err.Error()
		}
		if c.want == "" && got != "" || !strings.Contains(got, c.want) {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
}
