package engine

import (
	"context"
	"fmt"
	"sync"

	"rota/agent/engine/chunks"
	"rota/api/backoff"
)

// Watch probes the engines that are ready, stops those that nobody knows, and writes the record where
// that failed, until the context ends. An engine that fails several probes in a row is told as lost.
func (m *Manager) Watch(ctx context.Context) error {
	var tasks sync.WaitGroup
	defer tasks.Wait()
	for {
		if m.unrecorded.Load() && m.recording.TryLock() { // nothing is being written
			m.recording.Unlock()
			tasks.Go(func() { _ = m.remember() })
		}
		ready, unknown := m.due()
		for _, p := range ready {
			tasks.Go(func() { m.check(ctx, p) })
		}
		for _, p := range unknown {
			tasks.Go(func() { m.kill(ctx, p) })
		}
		if backoff.Sleep(ctx, m.WatchEvery) != nil {
			return ctx.Err()
		}
	}
}

// due are the engines that are ready and the orphans that nothing attends to.
func (m *Manager) due() (ready, unknown []*process) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range m.processes {
		if p.left == leftAwake && p.cancel == nil && !p.attended && !p.spec.GetNoProbe() {
			p.attended = true
			ready = append(ready, p)
		}
	}
	for _, p := range m.orphans {
		if !p.attended {
			p.attended = true
			unknown = append(unknown, p)
		}
	}
	return ready, unknown
}

// check probes an engine once.
func (m *Manager) check(ctx context.Context, p *process) {
	err := m.client(p).probe(ctx)
	m.mu.Lock()
	p.attended = false
	lost := false
	switch {
	case ctx.Err() != nil || p.left != leftAwake || p.cancel != nil || p.ceased(): // or a step says how it is
	case err == nil:
		p.failedProbes = 0
	default:
		p.failedProbes++
		if lost = p.failedProbes >= m.ProbesMax; lost {
			p.left = leftBusy // it is to be stopped
		}
	}
	m.mu.Unlock()
	if lost {
		m.Logger.Warn("an engine does not answer its probe", "model", p.runs.Engine.Model, "error", err)
		m.Tell(func(c *chunks.Chunks, now int64) {
			c.Lost(p.runs.Engine, chunks.Outcome{Message: fmt.Sprintf("%d probes in a row failed: %v", m.ProbesMax, err)}, now)
		})
	}
}
