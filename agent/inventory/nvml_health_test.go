//go:build nvml

package inventory

import (
	"reflect"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"

	"rota/agent/gpuhealth"
)

// sickGPU is a device of which a test says how it is.
type sickGPU struct {
	errors          uint64
	pending, failed bool
	links           []nvml.EnableState
	answer          nvml.Return
}

func (g *sickGPU) device() *mock.Device {
	return &mock.Device{
		GetUUIDFunc:        func() (string, nvml.Return) { return "GPU-0", nvml.SUCCESS },
		RegisterEventsFunc: func(uint64, nvml.EventSet) nvml.Return { return nvml.SUCCESS },
		GetTotalEccErrorsFunc: func(nvml.MemoryErrorType, nvml.EccCounterType) (uint64, nvml.Return) {
			return g.errors, g.answer
		},
		GetRemappedRowsFunc: func() (int, int, bool, bool, nvml.Return) { return 0, 0, g.pending, g.failed, g.answer },
		GetNvLinkStateFunc: func(link int) (nvml.EnableState, nvml.Return) {
			if link >= len(g.links) {
				return 0, nvml.ERROR_INVALID_ARGUMENT
			}
			return g.links[link], g.answer
		},
	}
}

func (g *sickGPU) probe(t *testing.T, events nvml.EventSet) Probe {
	p, err := probeOf(&mock.Interface{
		InitFunc:           func() nvml.Return { return nvml.SUCCESS },
		ShutdownFunc:       func() nvml.Return { return nvml.SUCCESS },
		EventSetCreateFunc: func() (nvml.EventSet, nvml.Return) { return events, nvml.SUCCESS },
		DeviceGetHandleByUUIDFunc: func(string) (nvml.Device, nvml.Return) {
			if g.answer == nvml.ERROR_NOT_FOUND {
				return nil, g.answer
			}
			return g.device(), nvml.SUCCESS
		},
	}, []string{"GPU-0"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

func TestConditionsOfGPUs(t *testing.T) {
	up, down := nvml.FEATURE_ENABLED, nvml.FEATURE_DISABLED
	for name, c := range map[string]struct {
		is   sickGPU
		want []gpuhealth.Condition
	}{
		"well":                    {sickGPU{links: []nvml.EnableState{up, down}}, nil},
		"ECC":                     {sickGPU{errors: 1}, []gpuhealth.Condition{gpuhealth.Uncorrected}},
		"remapping":               {sickGPU{pending: true, failed: true}, []gpuhealth.Condition{gpuhealth.RemapPending, gpuhealth.RemapFailed}},
		"a link that was up":      {sickGPU{links: []nvml.EnableState{down, down}}, []gpuhealth.Condition{gpuhealth.LinkDown}},
		"lost":                    {sickGPU{answer: nvml.ERROR_GPU_IS_LOST}, []gpuhealth.Condition{gpuhealth.Lost}},
		"reset required":          {sickGPU{answer: nvml.ERROR_RESET_REQUIRED}, []gpuhealth.Condition{gpuhealth.ResetRequired}},
		"not listed any more":     {sickGPU{answer: nvml.ERROR_NOT_FOUND}, []gpuhealth.Condition{gpuhealth.Lost}},
		"does not tell of itself": {sickGPU{errors: 9, answer: nvml.ERROR_NOT_SUPPORTED}, nil},
	} {
		g := &sickGPU{links: []nvml.EnableState{up, down}}
		p := g.probe(t, &mock.EventSet{FreeFunc: func() nvml.Return { return nvml.SUCCESS }})
		if got := p.Conditions(0); got != nil {
			t.Errorf("%s: at first %v", name, got)
		}
		*g = c.is
		if got := p.Conditions(0); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

func TestXIDsAreHeard(t *testing.T) {
	g, answer := &sickGPU{}, nvml.SUCCESS
	event := nvml.EventData{Device: g.device(), EventType: nvml.EventTypeXidCriticalError, EventData: 79}
	p := g.probe(t, &mock.EventSet{
		FreeFunc: func() nvml.Return { return nvml.SUCCESS },
		WaitFunc: func(uint32) (nvml.EventData, nvml.Return) { return event, answer },
	})
	if gpu, xid, ok := p.Wait(time.Millisecond); gpu != 0 || xid != 79 || !ok {
		t.Errorf("GPU %d, XID %d, %v", gpu, xid, ok)
	}
	if answer = nvml.ERROR_UNKNOWN; true {
		if _, _, ok := p.Wait(time.Millisecond); ok {
			t.Error("a failed wait is an XID")
		}
	}
}
