package evaluate

import "rota/fsm/state"

// Series is how a run went over time.
type Series struct {
	// Window is how long each point stands for, in nanoseconds.
	Window int64
	// ACT is the mean of the actions that were submitted in a window, in
	// nanoseconds; -1 where there was none.
	ACT []int64
	// Utilisation is in parts per million.
	Utilisation []int64
}

// Series cuts the run into windows.
func (r *Result) Series(window int64) Series {
	n := int(r.end/window) + 1
	s := Series{Window: window, ACT: make([]int64, n), Utilisation: make([]int64, n)}
	count, busy := make([]int64, n), make([]int64, n)
	for i := range r.entries {
		e := &r.entries[i]
		w := e.submitted / window
		s.ACT[w] += e.act
		count[w]++
		e.spread(window, busy)
	}
	for w := range n {
		if count[w] == 0 {
			s.ACT[w] = -1
		} else {
			s.ACT[w] /= count[w]
		}
		s.Utilisation[w] = perMillion(busy[w], r.Capacity.Units, window)
	}
	return s
}

// spread adds what an action used to the windows in which it executed, evenly.
func (e *entry) spread(window int64, busy []int64) {
	if e.busy == 0 {
		return
	}
	length := max(1, e.submitted+e.act-e.started)
	for at := e.started; at < e.started+length; {
		next := min((at/window+1)*window, e.started+length)
		busy[at/window] += int64(state.MulDiv(uint64(e.busy), uint64(next-at), uint64(length)))
		at = next
	}
}
