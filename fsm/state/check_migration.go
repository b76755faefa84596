package state

import "fmt"

// checkMigrations: each says what one in its state does, the running ones share no node and run
// between the incarnations that they began with, in a tool gap if they have a trajectory.
func (s *State) checkMigrations() (err error) {
	busy := map[NodeID]MigrationID{} // for look-up only, never ranged over
	s.Migrations(0, func(m *Migration) bool {
		if err = s.checkMigration(m); err == nil && m.State == MigrationRunning {
			err = s.checkTransfer(m, busy)
		}
		return err == nil
	})
	if c := s.MigrationCounts(); err == nil && (c.Queued+c.Running > MigrationsMax || c.SelectorBytes > SelectorsBytesMax || c.Ended > MigrationsKeptMax) {
		err = fmt.Errorf("there are too many migrations: %+v", c)
	}
	return err
}

func (s *State) checkMigration(m *Migration) error {
	live := !m.State.Final()
	switch {
	case m.ID == 0 || m.ID > s.meta.LastMigration || s.Namespace(m.Namespace) == nil:
		return fmt.Errorf("migration %d of namespace %d: the last is %d, or the namespace does not exist", m.ID, m.Namespace, s.meta.LastMigration)
	case m.State < MigrationQueued || m.State > MigrationCanceled || m.Source == m.Target:
		return fmt.Errorf("migration %d from node %d to node %d is in state %d", m.ID, m.Source, m.Target, m.State)
	case (m.Reason == 0) != (live || m.State == MigrationDone) || m.Reason > MigrationInternal || len(m.Message) > MigrationMessageBytesMax:
		return fmt.Errorf("migration %d in state %d has reason %d and a message of %d bytes", m.ID, m.State, m.Reason, len(m.Message))
	case live && (len(m.Selector) == 0 || len(m.Selector) > SelectorBytesMax) || !live && len(m.Selector) > 0:
		return fmt.Errorf("migration %d in state %d has a selector of %d bytes", m.ID, m.State, len(m.Selector))
	case m.QueueTimeoutNS <= 0 || m.RunTimeoutNS <= 0 || m.RequestedAt > s.meta.Now || m.StartedAt > s.meta.Now || m.EndedAt > s.meta.Now || live && m.EndedAt != 0:
		return fmt.Errorf("migration %d in state %d has times that cannot be: %+v", m.ID, m.State, *m)
	case live && (s.Node(m.Source) == nil || s.Node(m.Target) == nil):
		return fmt.Errorf("migration %d is between nodes %d and %d, of which one does not exist", m.ID, m.Source, m.Target)
	}
	if t := s.Trajectory(m.Trajectory); live && m.Trajectory != 0 && (t == nil || t.State >= TrajectoryClosing) {
		return fmt.Errorf("migration %d in state %d is of trajectory %d, which has ended", m.ID, m.State, m.Trajectory)
	}
	return nil
}

// checkTransfer takes down the nodes of a running migration, which no other may have.
func (s *State) checkTransfer(m *Migration, busy map[NodeID]MigrationID) error {
	for _, end := range []struct {
		node        NodeID
		incarnation uint64
	}{{m.Source, m.SourceIncarnation}, {m.Target, m.TargetIncarnation}} {
		n := s.Node(end.node)
		switch {
		case n.State != NodeUp || n.Incarnation != end.incarnation:
			return fmt.Errorf("migration %d runs at incarnation %d of node %s, which has %d and state %d", m.ID, end.incarnation, n.Name, n.Incarnation, n.State)
		case busy[n.ID] != 0:
			return fmt.Errorf("migrations %d and %d run at node %s", busy[n.ID], m.ID, n.Name)
		}
		busy[n.ID] = m.ID
	}
	if m.Trajectory != 0 && s.Trajectory(m.Trajectory).Live == 0 {
		return fmt.Errorf("migration %d runs outside a tool gap of trajectory %d", m.ID, m.Trajectory)
	}
	return nil
}
