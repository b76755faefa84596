package plan

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// sharing is a desired state in which those that have the CPUs that are shared share them.
func sharing(index uint64, shared CPUs, cpus ...CPUs) Desired {
	d := wide(index, cpus...)
	for i := range d.Assignments {
		d.Assignments[i].Shares = slices.Equal(d.Assignments[i].CPUs, shared)
	}
	return d
}

// Attempts go to the CPUs that they are to share when those that have these to themselves have left.
func TestSharersWaitForOwners(t *testing.T) {
	n := twoRunning(t) // 1 on 0 to 2, 2 on 3
	n.Desire(wide(102, CPUs{0, 1, 2}, CPUs{3}, CPUs{4}))
	expect(t, n, "start 3 [4]")
	n.Started(n.link.connection, k(3), OK, "", n.now)
	n.Desire(sharing(103, CPUs{2, 3}, CPUs{0}, CPUs{2, 3}, CPUs{2, 3}, CPUs{4}))
	expect(t, n, "resize 1 [0]", "resize 3 [3]") // 2 is there already, and shares it
	n.Resized(n.link.connection, k(3), true, n.now)
	expect(t, n, "start 4 [4]")
	n.Resized(n.link.connection, k(1), true, n.now)
	expect(t, n, "resize 2 [2 3]", "resize 3 [2 3]")
}

// Nobody gets a CPU to itself on which attempts run that share it.
func TestOwnersWaitForSharers(t *testing.T) {
	n := twoRunning(t)
	n.Desire(sharing(102, CPUs{2, 3}, CPUs{2, 3}, CPUs{2, 3}))
	expect(t, n, "resize 1 [2 3]", "resize 2 [2 3]")
	n.Resized(n.link.connection, k(1), true, n.now)
	n.Resized(n.link.connection, k(2), true, n.now)
	n.Desire(sharing(103, CPUs{2}, CPUs{2}, CPUs{2}, CPUs{3}, CPUs{0, 1}))
	expect(t, n, "resize 1 [2]", "resize 2 [2]", "start 4 [0 1]")
	n.Resized(n.link.connection, k(1), true, n.now)
	expect(t, n)
	n.Resized(n.link.connection, k(2), true, n.now)
	expect(t, n, "start 3 [3]")
}

// A new agent does not know who shares until it has been told. Till then all that runs has its CPUs to
// itself.
func TestSharersAfterANewConnection(t *testing.T) {
	n := twoRunning(t)
	n.Desire(sharing(102, CPUs{3}, CPUs{3}, CPUs{3}))
	expect(t, n, "resize 1 [3]")
	n.Disconnected()
	n.Connected([]Running{{Key: k(1), CPUs: CPUs{3}}, {Key: k(2), CPUs: CPUs{3}}}, nil, true, n.now)
	expect(t, n)
	n.Desire(sharing(103, CPUs{3, 4}, CPUs{3, 4}, CPUs{3, 4}))
	expect(t, n, "resize 1 [3 4]", "resize 2 [3 4]")
}

// share has the cluster let an attempt share CPUs with those that do so already.
func (m *machine) share(t *rapid.T) {
	if !m.resizes {
		t.Skip()
	}
	m.wants = slices.Clone(m.wants)
	as := &m.wants[pick(t, m.wants)]
	if as.shares || len(as.cpus) == 0 {
		t.Skip()
	}
	shared := append(m.sharedCPUs(), as.cpus...)
	m.shares[as.key], as.shares = true, true
	m.shared(shared[:rapid.IntRange(1, len(shared)).Draw(t, "shared")])
}

// resizeShared changes how many CPUs are shared. The first stays.
func (m *machine) resizeShared(t *rapid.T) {
	shared, free := m.sharedCPUs(), m.free()
	if len(shared) == 0 {
		t.Skip()
	}
	m.wants = slices.Clone(m.wants)
	if len(free) > 0 && rapid.Bool().Draw(t, "more") {
		shared = append(shared, free[pick(t, free)])
	} else {
		shared = shared[:rapid.IntRange(1, len(shared)).Draw(t, "shared")]
	}
	m.shared(shared)
}

func (m *machine) sharedCPUs() CPUs {
	i := slices.IndexFunc(m.wants, func(as assigned) bool { return as.shares })
	if i < 0 {
		return nil
	}
	return slices.Clone(m.wants[i].cpus)
}

func (m *machine) shared(cpus CPUs) {
	for i := range m.wants {
		if m.wants[i].shares {
			m.wants[i].cpus = cpus
		}
	}
	m.index++
}
