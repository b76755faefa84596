package evaluate

import "rota/fsm/state"

const million = 1_000_000

// perMillion returns the part that busy is of units for a time, in parts per
// million.
func perMillion(busy, units, time int64) int64 {
	if units <= 0 || time <= 0 {
		return 0
	}
	return int64(state.MulDiv(uint64(busy), million, uint64(units)*uint64(time)))
}
