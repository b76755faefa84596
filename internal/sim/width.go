package sim

import "rota/fsm/state"

// Width is what an attempt has of its key resource: units to itself, or cores that it shares with others, of
// attempts in all. Of is 0 if they are its own.
type Width struct{ Units, Of int64 }

// WidthOf is what an attempt is to have of the cores of its node.
func WidthOf(n *state.Node, t *state.Attempt) Width {
	if t.Shares {
		return Width{int64(n.Shared.Len()), int64(n.Sharing)}
	}
	return Width{Units: int64(t.Cores.Len())}
}

// Own is how many units nobody else has.
func (w Width) Own() int64 {
	if w.Of > 0 {
		return 0
	}
	return w.Units
}

// Held is how many units it has of a time, by as much as the time.
func (w Width) Held(time int64) int64 { return time * w.Units / max(1, w.Of) }

// Duration is how long something takes with it that takes so long with a number of units of its own. Shares of
// cores are equal.
func (w Width) Duration(with func(units int64) int64) int64 {
	if w.Of <= w.Units {
		return with(w.Units / max(1, w.Of))
	}
	return int64(state.MulDiv(uint64(with(1)), uint64(w.Of), uint64(max(1, w.Units))))
}
