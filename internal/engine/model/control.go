package model

import (
	"maps"
	"slices"
)

// operation is what an engine does instead of steps for a while.
type operation struct {
	kind Kind // 0: none; else the event at its end
	// begun is whether it has; it does when the step in progress ends.
	begun   bool
	takes   int64 // ps
	end     int64 // ps
	version uint64
	flush   bool
}

// PauseMode says what becomes of the requests when an engine is paused.
type PauseMode uint8

// Modes of a pause.
const (
	// PauseKeep: they stop where they are, with their KV cache (vLLM's keep, SGLang's in_place).
	PauseKeep PauseMode = iota
	// PauseWait: those that run go on to their end, and no other starts (vLLM's wait).
	PauseWait
	// PauseRetract: those that run go back to the queue, without their KV cache (SGLang's retract).
	PauseRetract
	// PauseAbort: all are canceled (vLLM's and SGLang's abort).
	PauseAbort
)

// Pause stops the engine when the step in progress ends. Resume goes on.
func (e *Engine) Pause(nowNS int64, mode PauseMode) {
	e.reach(nowNS)
	e.draining = mode == PauseWait
	e.paused = mode != PauseWait
	e.retracting = mode == PauseRetract
	if mode == PauseAbort {
		e.cancelAll()
	}
	e.attend()
}

// Resume ends a pause.
func (e *Engine) Resume(nowNS int64) {
	e.reach(nowNS)
	e.draining, e.paused, e.retracting = false, false, false
	e.attend()
}

// CancelAll cancels all requests, each with an event, and returns how many they were.
func (e *Engine) CancelAll(nowNS int64) int {
	e.reach(nowNS)
	return e.cancelAll()
}

func (e *Engine) cancelAll() (n int) {
	all := slices.Collect(maps.Values(e.requests))
	slices.SortFunc(all, byArrival)
	for _, r := range all {
		if e.cancel(r) {
			n++
		}
	}
	return n
}

// Sleep gives the memory of weights and KV cache back, when the step in progress ends. What runs
// goes back to the queue. It takes the profile's SleepNS, and ends with Asleep. The error is
// ErrBusy.
func (e *Engine) Sleep(nowNS int64) error {
	return e.begin(nowNS, operation{kind: Asleep, takes: e.config.Profile.SleepNS * psPerNS})
}

// Wake takes the memory again, in WakeNS. It ends with Awake.
func (e *Engine) Wake(nowNS int64) error {
	return e.begin(nowNS, operation{kind: Awake, takes: e.config.Profile.WakeNS * psPerNS})
}

// UpdateWeights replaces the weights, in the profile's UpdateNS, during which there are no steps.
// Requests that run go on with the new ones and the KV cache that they have. flush drops the
// prefixes of others, which were computed with the old ones. It ends with Updated.
func (e *Engine) UpdateWeights(nowNS int64, version uint64, flush bool) error {
	return e.begin(nowNS, operation{kind: Updated, takes: e.config.Profile.UpdateNS * psPerNS, version: version, flush: flush})
}

func (e *Engine) begin(nowNS int64, op operation) error {
	e.reach(nowNS)
	if e.op.kind != 0 {
		return ErrBusy
	}
	e.op = op
	e.attend()
	return nil
}

// operate goes on with an operation, and reports whether it still lasts.
func (e *Engine) operate(at int64) bool {
	op := &e.op
	if op.kind == 0 {
		return false
	}
	if !op.begun {
		op.begun, op.end = true, at+op.takes
		if op.kind == Asleep {
			e.retract(at)
			e.cache.clear()
		}
	}
	if at < op.end {
		e.look = op.end
		return true
	}
	switch op.kind {
	case Updated:
		e.version = op.version
		if op.flush {
			e.cache.clear()
		}
	case Asleep:
		e.asleep = true
	case Awake:
		e.asleep = false
	}
	kind := op.kind
	e.op = operation{}
	e.tell(kind, at, nil)
	return false
}

// retract sends all that run back to the queue, without their KV cache.
func (e *Engine) retract(at int64) {
	for _, r := range e.running() {
		e.preempt(at, r, false)
	}
}

// Prefix is how many tokens are cached under a key of which no request runs.
func (e *Engine) Prefix(nowNS int64, key uint64) int64 {
	e.reach(nowNS)
	e.cache.shrink(max(e.config.KVTokens-e.kvNow(), 0))
	return e.cache.get(key)
}

// Import puts a prefix into the cache that another engine had, and returns how many tokens of it
// there is room for. The caller lets the time of the transfer pass before.
func (e *Engine) Import(nowNS int64, key uint64, tokens int64) int64 {
	e.reach(nowNS)
	room := max(e.config.KVTokens-e.kvNow(), 0)
	if tokens = min(tokens, room); tokens > e.cache.get(key) && e.holders[key] == nil && !e.asleep {
		e.cache.put(key, tokens)
	}
	e.cache.shrink(room)
	return e.cache.get(key)
}

// Drop evicts a prefix of which no request runs, such as one that another engine has imported.
func (e *Engine) Drop(nowNS int64, key uint64) {
	e.reach(nowNS)
	e.cache.drop(key)
}

// ResetCache evicts all prefixes of which no request runs.
func (e *Engine) ResetCache(nowNS int64) {
	e.reach(nowNS)
	e.cache.clear()
}

// kvNow is the tokens of all that runs, now.
func (e *Engine) kvNow() int64 { return e.kv + e.span.doneBy(e.seen)*e.span.batch }

// Counters count since the beginning.
type Counters struct {
	Submitted, Finished, Canceled, Preempted uint64
	// Computed and Cached are tokens of prompts; Generated are tokens of outputs.
	Computed, Cached, Generated int64
}

// Load is what an engine has to do.
type Load struct {
	// Running includes Prefilling.
	Running, Prefilling, Waiting int
	// KVTokens are of running requests, CachedTokens of others, out of KVTokensMax.
	KVTokens, CachedTokens, KVTokensMax int64
	Version                             uint64
	// Paused: no step begins until Resume. Draining: no request starts.
	Paused, Draining, Asleep bool
	// Busy: it sleeps, wakes or loads weights just now.
	Busy bool
	Counters
}

// Load says what there is to do. Counters of tokens are as of the last change of the batch.
func (e *Engine) Load(nowNS int64) Load {
	e.reach(nowNS)
	kv := e.kvNow()
	return Load{
		Running: e.batch(), Prefilling: len(e.prefilling), Waiting: e.waiting.Len(),
		KVTokens: kv, CachedTokens: min(e.cache.tokens, max(e.config.KVTokens-kv, 0)), KVTokensMax: e.config.KVTokens,
		Version: e.version, Paused: e.paused, Draining: e.draining, Asleep: e.asleep, Busy: e.op.kind != 0,
		Counters: e.counters,
	}
}
