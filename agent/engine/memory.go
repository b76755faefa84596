package engine

import (
	"context"
	"fmt"
)

// slackPart of a GPU's memory may be in use beside what engines were given: by the contexts of
// engines that sleep, and by the driver.
const slackPart = 8

// untilFree waits until each GPU of an engine has the memory that the account says is free. It
// returns at once where nobody can say. The engine itself counts as one that holds none.
func (m *Manager) untilFree(ctx context.Context, p *process) error {
	if m.GPUMemory == nil {
		return nil
	}
	e := p.runs.Engine
	return poll(ctx, func(context.Context) error {
		for gpu := e.First; gpu < e.First+e.GPUs; gpu++ {
			used, total, err := m.GPUMemory(gpu)
			if err != nil {
				return err
			}
			if allowed := m.given(gpu, p) + total/slackPart; used > allowed {
				return fmt.Errorf("GPU %d has %d MiB in use, and engines were given %d MiB: the memory is not free yet, or another program has it%s",
					gpu, used>>20, m.given(gpu, p)>>20, m.users(gpu))
			}
		}
		return nil
	})
}

// users names the processes that have memory of a GPU, to follow a sentence.
func (m *Manager) users(gpu int) string {
	if m.GPUUsers == nil {
		return ""
	}
	if users := m.GPUUsers(gpu); users != "" {
		return "; in use by " + users
	}
	return ""
}

// given is the memory of a GPU that engines have, or may be taking, but one.
func (m *Manager) given(gpu int, but *process) (sum uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range m.processes {
		if p != but && p.left != leftAsleep && p.runs.Engine.Has(gpu) {
			sum += p.runs.MemoryBytes
		}
	}
	return sum
}
