package layers

import (
	"errors"

	"rota/agent/internal/record"
)

// OnRemove has files removed by another function, for tests.
func (s *Store) OnRemove(fn func(path string) error) { s.removeAll = fn }

// OnWrite has a function called before a record is written, which fails with its error.
func (s *Store) OnWrite(fn func(path string) error) {
	s.write = func(path string, what any) error {
		if err := fn(path); err != nil {
			return err
		}
		return record.ReplaceJSON(path, what)
	}
}

// OnSync has files written to disk by another function, as soon as a snapshot is taken.
func (s *Store) OnSync(fn func() error) { s.sync, s.settleDelay = fn, 0 }

// CanMount has the store mount layers, or not.
func (s *Store) CanMount(can bool) {
	s.probing.Lock()
	defer s.probing.Unlock()
	s.overlays = can
}

// OnProbe has another function find out whether layers can be mounted, from now on.
func (s *Store) OnProbe(fn func() error) {
	s.probing.Lock()
	defer s.probing.Unlock()
	s.probe = func(string) error { return fn() }
	s.tryMounts()
}

// Pinned are the layers that Sweep leaves alone though no record may name them.
func (s *Store) Pinned() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.pinned)
}

// Settling reports whether snapshots are being written to disk.
func (s *Store) Settling() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.settling
}

// ErrNotTried is an error of a sync that was not begun.
var ErrNotTried = errNotTried

// Remove forgets a snapshot, and removes what nothing has any more.
func (s *Store) Remove(id uint64) error { return errors.Join(s.Forget(id), s.Sweep()) }
