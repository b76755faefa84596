package replica

import (
	"maps"
	"sync"
)

// zones are the redundancy zones that servers told last, by their IDs. The leader tells all
// servers what it knows with each question, so that a new leader knows the zone of the one
// that died. After a restart of all servers, that of a dead one is not known.
type zones struct {
	mu   sync.Mutex
	told map[string]string
}

func (z *zones) learn(told map[string]string) {
	z.mu.Lock()
	defer z.mu.Unlock()
	if z.told == nil {
		z.told = map[string]string{}
	}
	maps.Copy(z.told, told)
}

func (z *zones) known() map[string]string {
	z.mu.Lock()
	defer z.mu.Unlock()
	return maps.Clone(z.told)
}
