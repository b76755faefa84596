package plan

import (
	"slices"

	"pgregory.net/rapid"
)

// What dies or is cut off in a history.

// disconnect loses the connection to the supervisor, and makes another one. What was
// asked and not done on the old one never is. An answer that is on its way may come, late.
func (m *machine) disconnect(t *rapid.T) {
	m.connected = false
	m.plan.Disconnected()
	var unanswered []Start
	m.todo = slices.DeleteFunc(m.todo, func(d todo) bool {
		switch s := d.step.(type) {
		case Start:
			if d.done && rapid.Bool().Draw(t, "answered") {
				return false
			}
			unanswered = append(unanswered, s)
			return true
		case Kill, Resize, Forget, Arm, List:
			return !d.done
		}
		return false
	})
	m.ask()
	early := rapid.IntRange(0, len(unanswered)).Draw(t, "known before the next connection")
	for i, s := range unanswered {
		if i == early {
			m.reconnect()
		}
		m.plan.Started(s.Connection, s.Key, Unknown, "lost", m.now)
	}
	if early == len(unanswered) {
		m.reconnect()
	}
	m.ask()
}

func (m *machine) reconnect() {
	m.connected = true
	m.plan.Connected(m.running(), slices.Clone(m.ends), m.resizes, m.now)
}

// supervisorDies with all that it runs. Its successor knows of it, or not.
func (m *machine) supervisorDies(t *rapid.T) {
	m.connected = false // nothing tells
	before := len(m.ends)
	for _, k := range slices.Clone(m.runs) {
		m.finish(k, ReasonSupervisorLost)
	}
	if rapid.Bool().Draw(t, "forgets") {
		m.ends = m.ends[:before]
	}
	m.deadline = 0
	m.disconnect(t)
}

// agentDies. A write that was under way may be on the disk.
func (m *machine) agentDies(t *rapid.T) {
	for _, d := range m.todo {
		if j, ok := d.step.(Journal); ok && rapid.Bool().Draw(t, "written") {
			m.write(j)
		}
	}
	m.boot()
}

// loseJournal has an agent start that knows nothing.
func (m *machine) loseJournal(t *rapid.T) {
	m.journaled, m.attempts = 0, nil
	m.todo = nil
	m.boot()
}

// reboot ends everything on the machine at once.
func (m *machine) reboot(t *rapid.T) {
	m.connected = false
	for _, k := range slices.Clone(m.runs) {
		m.finish(k, ReasonSupervisorLost)
	}
	m.deadline = 0
	for i := range m.attempts {
		m.attempts[i].Rebooted = true
	}
	m.agentDies(t)
}
