package container

import (
	"testing"
	"time"
)

// removed says whether a collection would remove an image.
func removed(t *testing.T, h *imageHolds, name string) (done bool) {
	t.Helper()
	err := h.unlessHeld(name, func() error {
		done = true
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	return done
}

// A collection has decided by what it saw when it began. What was held since then stays.
func TestACollectionLeavesWhatWasHeldSinceItBegan(t *testing.T) {
	const full = "docker.io/library/tools:latest"
	h := new(imageHolds)
	first, second := h.hold("tools"), h.hold(full)
	end := h.begin()
	first()
	first() // a second time means nothing
	second()
	if removed(t, h, full) || removed(t, h, "tools") {
		t.Error("an image that was held when the collection began is removed")
	}
	if !removed(t, h, "docker.io/library/other:latest") {
		t.Error("an image that was never held stays")
	}
	h.hold("other")()
	if removed(t, h, "docker.io/library/other:latest") {
		t.Error("an image that was held meanwhile is removed")
	}
	all := []*storedImage{{name: full}, {name: "idle"}, {name: "used", inUse: true}}
	if h.mark(all); !all[0].inUse || all[1].inUse || !all[2].inUse {
		t.Errorf("in use are %v, %v, %v", all[0].inUse, all[1].inUse, all[2].inUse)
	}
	end()
	defer h.begin()()
	if !removed(t, h, full) || len(h.held) > 0 {
		t.Errorf("the next collection does not remove it: %v", h.held)
	}
}

// Whoever wants an image while it is removed waits until it is gone.
func TestAHoldWaitsForARemoval(t *testing.T) {
	h := new(imageHolds)
	defer h.begin()()
	held := make(chan struct{})
	err := h.unlessHeld("tools", func() error {
		go func() {
			h.hold("tools")()
			close(held)
		}()
		select {
		case <-held:
			t.Error("it did not wait")
		case <-time.After(50 * time.Millisecond):
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	<-held
}
