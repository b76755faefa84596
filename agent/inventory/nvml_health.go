//go:build nvml

package inventory

import (
	"slices"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"rota/agent/gpuhealth"
)

func nvmlProbe(uuids []string) (Probe, error) { return probeOf(nvml.New(), uuids) }

// probe asks the driver. Handles of devices are looked up again each time: that of a GPU that
// was reset is not valid any more.
type probe struct {
	lib    nvml.Interface
	uuids  []string
	events nvml.EventSet // nil: the driver tells of none
	// links are the NVLinks of each GPU that have been up: others are not wired.
	links [][]bool
}

func probeOf(lib nvml.Interface, uuids []string) (Probe, error) {
	if r := lib.Init(); r != nvml.SUCCESS {
		return nil, cannotInit(lib, r)
	}
	p := &probe{lib: lib, uuids: uuids, links: make([][]bool, len(uuids))}
	for i := range p.links {
		p.links[i] = make([]bool, nvml.NVLINK_MAX_LINKS)
	}
	set, r := lib.EventSetCreate()
	if r != nvml.SUCCESS {
		return p, nil
	}
	p.events = set
	for _, uuid := range uuids {
		if device, r := lib.DeviceGetHandleByUUID(uuid); r == nvml.SUCCESS {
			// One that does not tell of XIDs is still read.
			_ = device.RegisterEvents(nvml.EventTypeXidCriticalError, set)
		}
	}
	return p, nil
}

// Close implements Probe.
func (p *probe) Close() {
	if p.events != nil {
		_ = p.events.Free()
	}
	_ = p.lib.Shutdown()
}

// Conditions implements Probe. What the driver does not tell of a GPU is taken to be well.
func (p *probe) Conditions(gpu int) (all []gpuhealth.Condition) {
	device, r := p.lib.DeviceGetHandleByUUID(p.uuids[gpu])
	if c := gone(r); c != "" || r != nvml.SUCCESS {
		if c == "" {
			c = gpuhealth.Lost // the driver does not list it any more
		}
		return []gpuhealth.Condition{c}
	}
	add := func(c gpuhealth.Condition, is bool) {
		if is && !slices.Contains(all, c) {
			all = append(all, c)
		}
	}
	errors, r := device.GetTotalEccErrors(nvml.MEMORY_ERROR_TYPE_UNCORRECTED, nvml.VOLATILE_ECC)
	add(gone(r), gone(r) != "")
	add(gpuhealth.Uncorrected, r == nvml.SUCCESS && errors > 0)
	_, _, pending, failed, r := device.GetRemappedRows()
	add(gone(r), gone(r) != "")
	add(gpuhealth.RemapPending, r == nvml.SUCCESS && pending)
	add(gpuhealth.RemapFailed, r == nvml.SUCCESS && failed)
	for link := range p.links[gpu] {
		state, r := device.GetNvLinkState(link)
		if r != nvml.SUCCESS {
			add(gone(r), gone(r) != "")
			break
		}
		up := state == nvml.FEATURE_ENABLED
		add(gpuhealth.LinkDown, p.links[gpu][link] && !up)
		p.links[gpu][link] = p.links[gpu][link] || up
	}
	return all
}

// gone is what an answer of the driver says of the GPU itself; empty: nothing.
func gone(r nvml.Return) gpuhealth.Condition {
	switch r {
	case nvml.ERROR_GPU_IS_LOST:
		return gpuhealth.Lost
	case nvml.ERROR_RESET_REQUIRED:
		return gpuhealth.ResetRequired
	}
	return ""
}

// Wait implements Probe.
func (p *probe) Wait(atMost time.Duration) (gpu int, xid uint64, ok bool) {
	if p.events == nil {
		time.Sleep(atMost)
		return 0, 0, false
	}
	began := time.Now()
	event, r := p.events.Wait(uint32(atMost.Milliseconds()))
	if r != nvml.SUCCESS || event.EventType != nvml.EventTypeXidCriticalError {
		if r != nvml.ERROR_TIMEOUT && time.Since(began) < atMost {
			time.Sleep(atMost - time.Since(began)) // a driver that fails is not asked without a pause
		}
		return 0, 0, false
	}
	uuid, r := event.Device.GetUUID()
	if gpu = slices.Index(p.uuids, uuid); r != nvml.SUCCESS || gpu < 0 {
		return 0, 0, false
	}
	return gpu, event.EventData, true
}
