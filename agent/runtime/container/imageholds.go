package container

import "sync"

// imageHolds are the images that sandboxes are opened with now, or that are being pulled.
type imageHolds struct {
	mu   sync.Mutex
	held map[string]int // by all that the image may be called
	// since has those that were held since a collection began, which leaves them; nil: none goes on.
	since map[string]bool
}

// hold keeps collections from an image, which need not be there yet, until release. It waits while a
// collection removes an image, so that what is found afterwards stays.
func (h *imageHolds) hold(name string) (release func()) {
	all := names(name)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.held == nil {
		h.held = map[string]int{}
	}
	for _, n := range all {
		h.held[n]++
		if h.since != nil {
			h.since[n] = true
		}
	}
	return sync.OnceFunc(func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		for _, n := range all {
			if h.held[n]--; h.held[n] == 0 {
				delete(h.held, n)
			}
		}
	})
}

// begin begins a collection. No other one may go on.
func (h *imageHolds) begin() (end func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.since = map[string]bool{}
	for n := range h.held {
		h.since[n] = true
	}
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.since = nil
	}
}

// mark notes the images that are in use because they were held since the collection began.
func (h *imageHolds) mark(all []*storedImage) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, i := range all {
		i.inUse = i.inUse || h.since[i.name]
	}
}

// unlessHeld does something with an image that was not held since the collection began. What would hold
// the image waits meanwhile.
func (h *imageHolds) unlessHeld(name string, do func() error) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.since[name] {
		return nil
	}
	return do()
}
