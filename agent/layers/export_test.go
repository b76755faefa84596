package layers

// OnRemove has files removed by another function, for tests.
func (s *Store) OnRemove(fn func(path string) error) { s.removeAll = fn }
