package rpc

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	rotav1 "rota/api/gen/rota/v1"
)

func TestCheckNeeds(t *testing.T) {
	gpus := func(n ...uint32) *rotav1.Resources { return &rotav1.Resources{Gpus: &rotav1.GpuDemand{Gpus: n}} }
	with := func(r *rotav1.Resources, change func(*rotav1.Resources)) *rotav1.Resources { change(r); return r }
	for _, c := range []struct {
		r     *rotav1.Resources
		wants string
	}{
		{gpus(1, 2, 8), ""},
		{gpus(), "resources.gpus.gpus must have at least one"},
		{gpus(1, 3), "resources.gpus.gpus must be of 1, 2, 4 and 8"},
		{gpus(16), "must be of 1, 2, 4 and 8"},
		{gpus(2, 2), "must ascend"},
		{with(gpus(1), func(r *rotav1.Resources) { r.MaxCores = 2 }), "resources.max_cores"},
		{with(gpus(1), func(r *rotav1.Resources) { r.AllowedCores = []uint32{1, 2} }), "resources.allowed_cores"},
		{with(gpus(1), func(r *rotav1.Resources) { r.Gpus.Setup = durationpb.New(time.Second) }), "resources.gpus.setup needs a model"},
		{&rotav1.Resources{BandwidthBps: 1 << 60}, "resources.bandwidth_bps"},
	} {
		v := checkNeeds(&rotav1.ActionSpec{Resources: c.r})
		if c.wants == "" && v != nil || c.wants != "" && (v == nil || !strings.Contains(v.failure().Error(), c.wants)) {
			t.Errorf("%v: %v, want %q", c.r, v, c.wants)
		}
	}
	if v := checkNeeds(&rotav1.ActionSpec{TrajectoryId: 1, Resources: gpus(1)}); v == nil {
		t.Error("a trajectory's action may have GPUs")
	}
}
