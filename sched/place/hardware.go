package place

import (
	"cmp"
	"math"
	"slices"

	"rota/fsm/state"
)

// Hardware is a class of workers and what was measured of it.
type Hardware struct {
	Name string
	// PrefillNS is the time to compute 1,000 tokens of a prompt; 0: not measured.
	PrefillNS uint64
	// TokenNS is the time for the next token of each request in a batch of Batch; 0: not
	// measured. A Batch of 0 counts as 1.
	TokenNS uint64
	Batch   uint64
	// Cost is what an hour of a worker costs, in the unit of the others.
	Cost uint64
}

// Tokens are what a trajectory, or its class, has needed.
type Tokens struct {
	// Prefilled are tokens of prompts and results of tools. With a prefix cache each is computed
	// once, so these are the tokens of the context that were not generated.
	Prefilled uint64
	// Generated are tokens of the model.
	Generated uint64
}

// phases are the times that prefill and decoding take a worker of some hardware. A batch decodes
// together, so each of its requests has a part of the time of a token.
func (t Tokens) phases(h Hardware) (prefillNS, decodeNS uint64) {
	return state.MulDiv(t.Prefilled, h.PrefillNS, 1000), state.MulDiv(t.Generated, h.TokenNS, max(h.Batch, 1))
}

// PrefillHeavy reports whether prompts and results of tools take a worker of some hardware longer
// than what the model generates: such work is bound by compute, other work by memory bandwidth
// (RollArt §3.1).
func (t Tokens) PrefillHeavy(h Hardware) bool {
	prefill, decode := t.phases(h)
	return prefill > decode
}

// PreferHardware returns indexes of kinds, the best one first, for a trajectory (RollArt §4.1,
// §5.1). The wanted names come first, in their order. The others follow as a fallback: those for
// which the tokens of the trajectory are cheapest, and then those of which nothing was measured,
// the cheapest hour first. costPPM weighs cost: with 0 only time counts, with 1,000,000 the product
// of time and cost; it is at most that.
//
// So a trajectory without wanted names goes to compute-optimised hardware if it is prefill-heavy
// and to bandwidth-optimised hardware if it is decode-heavy, in as far as this was measured.
func PreferHardware(kinds []Hardware, wanted []string, t Tokens, costPPM uint64) []int {
	cheapest := uint64(math.MaxUint64)
	for _, h := range kinds {
		cheapest = min(cheapest, max(h.Cost, 1))
	}
	order, wants, prices := make([]int, len(kinds)), make([]int, len(kinds)), make([]uint64, len(kinds))
	for i, h := range kinds {
		order[i], wants[i] = i, len(wanted)
		if w := slices.Index(wanted, h.Name); w >= 0 {
			wants[i] = w
		}
		prices[i] = t.price(h, cheapest, min(costPPM, million))
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(wants[a], wants[b]), cmp.Compare(prices[a], prices[b]), cmp.Compare(kinds[a].Cost, kinds[b].Cost))
	})
	return order
}

const million = 1_000_000

// price is the time that the tokens take some hardware, weighed by how many times the cheapest
// it costs.
func (t Tokens) price(h Hardware, cheapest, costPPM uint64) uint64 {
	if h.PrefillNS == 0 || h.TokenNS == 0 {
		return math.MaxUint64 // not measured: behind all that was
	}
	prefill, decode := t.phases(h)
	ns := prefill + min(decode, math.MaxUint64-prefill)
	relative := state.MulDiv(million, max(h.Cost, 1), cheapest)
	weight := state.MulDiv(relative, costPPM, million)
	return min(math.MaxUint64-1, state.MulDiv(ns, million-costPPM+min(weight, math.MaxUint64-million), million))
}
