package rpc

import (
	rotav1 "rota/api/gen/rota/v1"
	"rota/fsm/state"
)

// Limits of GPUs and of bandwidth.
const (
	bandwidthMax  = 1 << 50 // bits a second
	modelBytesMax = 128
)

func checkBandwidth(path string, bps uint64) *violation {
	if bps > bandwidthMax {
		return wrong(path, "must be at most %d bit/s, is %d", uint64(bandwidthMax), bps)
	}
	return nil
}

// checkInventory checks the GPUs that an agent declares.
func checkInventory(g *rotav1.GpuInventory) *violation {
	if g == nil {
		return nil
	}
	switch {
	case g.Class == "":
		return wrong("gpus.class", "is required")
	case g.Count == 0 || g.Count > state.GPUsPerNodeMax:
		return wrong("gpus.count", "must be 1 to %d, is %d", state.GPUsPerNodeMax, g.Count)
	case g.MemoryBytes == 0:
		return wrong("gpus.memory_bytes", "must not be 0")
	}
	return firstOf(checkText("gpus.class", g.Class, nameBytesMax), checkMemory("gpus.memory_bytes", g.MemoryBytes))
}

// checkNeeds checks what most actions do not ask for.
func checkNeeds(s *rotav1.ActionSpec) *violation {
	r := s.Resources
	if r == nil {
		return nil
	}
	if v := checkBandwidth("resources.bandwidth_bps", r.BandwidthBps); v != nil || r.Gpus == nil {
		return v
	}
	switch least := leastCores(r); {
	case s.TrajectoryId != 0:
		return wrong("resources.gpus", "cannot be had by an action of a trajectory: submit it without one")
	case r.MaxCores > least:
		return wrong("resources.max_cores", "must be 0 or the same as cores, which is %d, for an action with GPUs; is %d", least, r.MaxCores)
	case len(r.AllowedCores) > 0:
		return wrong("resources.allowed_cores", "must be empty for an action with GPUs: its GPUs may be elastic, its cores not")
	}
	return checkGPUs(r.Gpus).in("resources.gpus")
}

func checkGPUs(g *rotav1.GpuDemand) *violation {
	if hasUnknown(g) {
		return wrong("", "has fields that this server does not know: leave them out, or upgrade the servers")
	}
	if len(g.Gpus) == 0 {
		return wrong("gpus", "must have at least one number: of 1, 2, 4 and 8")
	}
	for i, k := range g.Gpus {
		switch {
		case !(state.Chunk{Units: k}).Aligned(state.GPUsPerNodeMax):
			return wrong("gpus", "must be of 1, 2, 4 and 8, has %d", k)
		case i > 0 && k <= g.Gpus[i-1]:
			return wrong("gpus", "must ascend: %d comes after %d", k, g.Gpus[i-1])
		}
	}
	if g.Setup.AsDuration() > 0 && g.Model == "" {
		return wrong("setup", "needs a model to set up")
	}
	return firstOf(checkText("class", g.Class, nameBytesMax), checkText("model", g.Model, modelBytesMax),
		checkMemory("memory_bytes", g.MemoryBytes), checkDuration("setup", g.Setup))
}
