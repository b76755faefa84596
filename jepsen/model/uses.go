package model

import (
	"fmt"
	"math/big"
	"time"

	"rota/fsm/state"
)

// uses are what namespaces have used.
type uses map[state.NamespaceID]*state.NamespaceUse

func (m *Model) useOf(id state.NamespaceID) *state.NamespaceUse {
	if m.uses == nil {
		m.uses = uses{}
	}
	if m.uses[id] == nil {
		m.uses[id] = &state.NamespaceUse{Namespace: id}
	}
	return m.uses[id]
}

// usedAttempt counts what a live attempt has held until now.
func (m *Model) usedAttempt(a *action) {
	if m.level < levelResizing {
		return
	}
	u, held := m.useOf(a.Namespace), m.now-a.StartedAt
	u.CoreUS += a.usedUntil(m.now) / 1000
	u.GPUUS += uint64(a.chunk.Units) * uint64(held/1000)
	addMemory(u, a.reserved, held)
	u.Attempts++
}

// addMemory counts bytes that were reserved for some nanoseconds.
func addMemory(u *state.NamespaceUse, reserved uint64, held int64) {
	memory := new(big.Int).Mul(big.NewInt(int64(reserved>>20)), big.NewInt(held))
	seconds, rest := memory.Add(memory, new(big.Int).SetUint64(u.MemoryRest)).DivMod(memory, big.NewInt(int64(time.Second)), new(big.Int))
	u.MemoryMiBS += seconds.Uint64()
	u.MemoryRest = rest.Uint64()
}

// usedMemory counts what the trajectories of a namespace that have a node have reserved until now,
// before t becomes or ceases to be one of them.
func (m *Model) usedMemory(t *trajectory) {
	if m.level < levelResizing || t.Memory == 0 {
		return
	}
	u, placed := m.useOf(t.Namespace), uint64(0)
	for _, n := range m.nodes {
		for _, o := range n.hosted {
			if o.Namespace == t.Namespace {
				placed += o.Memory
			}
		}
	}
	if u.MemoryAt != 0 {
		addMemory(u, placed, m.now-u.MemoryAt)
	}
	u.MemoryAt = m.now
}

// usedAction counts an action that has ended.
func (m *Model) usedAction(a *action) {
	if m.level < levelResizing {
		return
	}
	u := m.useOf(a.Namespace)
	u.Ended++
	if a.State == state.ActionSucceeded {
		u.Succeeded++
	}
	if a.Result != nil && a.Result.CPUNS > 0 {
		u.CPUUS += uint64(a.Result.CPUNS / 1000)
	}
}

// compareUses compares all of them: there are few namespaces.
func (m *Model) compareUses() error {
	for name, id := range m.namespaces {
		got, want := m.s.Use(id), m.uses[id]
		if got == nil && want == nil {
			continue
		}
		if got == nil || want == nil || *got != *want {
			return fmt.Errorf("namespace %s has used %+v, must be %+v", name, got, want)
		}
	}
	return nil
}
