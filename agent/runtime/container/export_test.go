package container

// SetLayersMax has a root file system have fewer layers, for tests.
func (m *Manager) SetLayersMax(n int) { m.layersMax = n }

// Waiting is how many wait for a pull of an image.
func (p *Puller) Waiting(name string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if one := p.pulls[fullName(name)]; one != nil {
		return one.waiting
	}
	return 0
}
