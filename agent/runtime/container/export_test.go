package container

// SetLayersMax has a root file system have fewer layers, for tests.
func (m *Manager) SetLayersMax(n int) { m.layersMax = n }
