package inventory

// GPUUser is a process that has memory of a GPU.
type GPUUser struct {
	PID   int
	Bytes uint64 // 0: the driver does not say
}

// GPUUsers returns the processes that have memory of a GPU, as far as the driver tells: in a
// container or a virtual machine it may know none. It fails if the GPUs are simulated.
func (inv *Inventory) GPUUsers(gpu int) ([]GPUUser, error) {
	if inv.GPUs == nil || inv.GPUs.Simulated() {
		return nil, ErrNoGPUs
	}
	return ask(driverMax, func() ([]GPUUser, error) { return nvmlUsers(inv.GPUs.UUIDs[gpu]) })
}

// GPUMemory returns what says how many bytes of a GPU are in use, by anything, and how many it
// has. nil: the GPUs are simulated, or there are none, so nothing can say.
func (inv *Inventory) GPUMemory() func(gpu int) (used, total uint64, err error) {
	if inv.GPUs == nil || inv.GPUs.Simulated() {
		return nil
	}
	uuids := inv.GPUs.UUIDs
	return func(gpu int) (used, total uint64, err error) {
		memory, err := ask(driverMax, func() (m [2]uint64, err error) {
			m[0], m[1], err = nvmlMemory(uuids[gpu])
			return m, err
		})
		return memory[0], memory[1], err
	}
}
