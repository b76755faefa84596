package inventory

// GPUMemory returns what says how many bytes of a GPU are in use, by anything, and how many it
// has. nil: the GPUs are simulated, or there are none, so nothing can say.
func (inv *Inventory) GPUMemory() func(gpu int) (used, total uint64, err error) {
	if inv.GPUs == nil || inv.GPUs.Simulated() {
		return nil
	}
	uuids := inv.GPUs.UUIDs
	return func(gpu int) (used, total uint64, err error) { return nvmlMemory(uuids[gpu]) }
}
