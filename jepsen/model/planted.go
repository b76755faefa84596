package model

import (
	"cmp"
	"fmt"
	"slices"

	"rota/fsm/state"
)

// PlantedMessage is what a planted panic says.
const PlantedMessage = "planted"

// Planted is a decision that was made to panic on purpose: that of a command, or one about what is named.
type Planted struct {
	Command   int // number of the command in its entry, -1 if it is none
	Pool      state.PoolID
	Quota     state.QuotaID
	Group     state.GroupID
	Migration state.MigrationID
	Rollout   state.RolloutID
	// Placement of jobs.
	Placement bool
}

// commandPlanted reports whether a command of this entry was made to panic.
func (m *Model) commandPlanted(i int) bool {
	return slices.ContainsFunc(m.planted, func(p Planted) bool { return p.Command == i })
}

// migrationPlanted reports whether a decision about a migration was made to panic.
func (m *Model) migrationPlanted(id state.MigrationID) bool {
	return slices.ContainsFunc(m.planted, func(p Planted) bool { return p.Migration == id })
}

// halt halts what a planted panic was about. Nothing else is halted that was not before.
func (m *Model) halt() error {
	for _, p := range m.planted {
		switch {
		case p.Pool != 0:
			m.poolByID[p.Pool].halted = true
		case p.Quota != 0:
			i := slices.IndexFunc(m.quotaList, func(q *quota) bool { return q.id == p.Quota })
			m.quotaList[i].halted = true
		case p.Group != 0:
			m.nodeGroup(p.Group).Halted = PlantedMessage
		case p.Rollout != 0:
			m.rollouts.all[p.Rollout].Halted = PlantedMessage
			m.rollouts.touched[p.Rollout] = true
		case p.Placement:
			m.halted = true
		}
	}
	return m.compareHalts()
}

// compareHalts: all that an operator has to resume is halted, and nothing else.
func (m *Model) compareHalts() (err error) {
	differs := func(what, reason string, halted bool) {
		if (reason != "") != halted {
			err = cmp.Or(err, fmt.Errorf("%s is halted: %q, must be halted: %v", what, reason, halted))
		}
	}
	m.s.Pools(func(p *state.Pool) bool {
		if known := m.poolByID[p.ID]; known != nil {
			differs("pool "+p.Name, p.Halted, known.halted)
		}
		return true
	})
	for _, q := range m.quotaList {
		if row := m.s.Quota(q.id); row != nil {
			differs("quota "+q.name, row.Halted, q.halted)
		}
	}
	for _, g := range m.groups {
		if row := m.s.NodeGroup(g.ID); row != nil {
			differs("group "+g.Name, row.Halted, g.Halted != "")
		}
	}
	differs("placement", m.s.Meta().PlacementHalted, m.halted)
	return err
}
