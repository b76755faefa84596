package inventory

import (
	"time"

	"rota/agent/gpuhealth"
)

// Probe reads how the GPUs of a node are.
type Probe interface {
	// Conditions returns what is wrong with a GPU now.
	Conditions(gpu int) []gpuhealth.Condition
	// Wait returns the next XID of a GPU. It waits for so long at most; false: there was none.
	Wait(atMost time.Duration) (gpu int, xid uint64, ok bool)
	// Close gives back what the driver holds for the probe.
	Close()
}

// Probe returns what reads the health of the node's GPUs. nil: they are simulated, or there are
// none.
func (inv *Inventory) Probe() (Probe, error) {
	if inv.GPUs == nil || inv.GPUs.Simulated() {
		return nil, nil
	}
	return ask(driverMax, func() (Probe, error) { return nvmlProbe(inv.GPUs.UUIDs) })
}
