package model

// batch is how many requests run.
func (e *Engine) batch() int { return e.decoding.Len() + len(e.prefilling) }

// mayAdmit reports whether it is worth looking at the queue when the step ends.
func (e *Engine) mayAdmit() bool {
	return e.waiting.Len() > 0 && (e.batch() < e.config.Slots || e.config.Preemption != PreemptForMemory)
}

// relieve makes room for the next step: it preempts until each request of the batch has room for
// one more token. The last one always has.
func (e *Engine) relieve(at int64) (did bool) {
	for e.kv+int64(e.batch()) > e.config.KVTokens {
		e.preempt(at, e.lowest(), e.config.Preemption == PreemptKeep)
		did = true
	}
	return did
}

// lowest is the running request that ranks lowest, or nil.
func (e *Engine) lowest() (lowest *request) {
	for _, r := range e.decoding.of {
		if lowest == nil || lowest.outranks(r) {
			lowest = r
		}
	}
	for _, r := range e.prefilling {
		if lowest == nil || lowest.outranks(r) {
			lowest = r
		}
	}
	return lowest
}

// preempt sends a running request back to the queue.
func (e *Engine) preempt(at int64, r *request, keep bool) {
	e.stop(r, keep)
	e.tell(Preempted, at, r)
	e.waiting.add(r)
	e.counters.Preempted++
}

// admit takes requests into the batch, the first in rank first. One that has no room is not
// overtaken.
func (e *Engine) admit(at int64) {
	for e.waiting.Len() > 0 {
		r := e.waiting.first()
		if e.batch() < e.config.Slots && e.kv+r.Prompt+r.done+int64(e.batch())+1 <= e.config.KVTokens {
			e.waiting.remove(r)
			e.start(at, r)
			continue
		}
		if e.config.Preemption == PreemptForMemory {
			return
		}
		lowest := e.lowest()
		if lowest == nil || lowest.Priority >= r.Priority {
			return
		}
		e.preempt(at, lowest, e.config.Preemption == PreemptKeep)
	}
}

// start takes a request into the batch. What is cached of its prompt is taken from the cache.
func (e *Engine) start(at int64, r *request) {
	r.context = r.Prompt + r.done
	cached := e.cached(r)
	e.cache.drop(r.Key)
	e.cache.touch(r.Parent)
	r.left = r.context - cached
	r.state = prefilling
	e.kv += r.context
	e.prefilling = append(e.prefilling, r)
	r.sibling, e.holders[r.Key] = e.holders[r.Key], r
	e.counters.Cached += cached
	e.tell(Started, at, r)
}

// cached is how many tokens of a request are in the cache.
func (e *Engine) cached(r *request) int64 {
	own := e.computed(r.Key)
	if r.Match > 0 && r.done == 0 {
		own = min(own, r.Match)
	}
	if r.Parent != 0 {
		own = max(own, min(e.computed(r.Parent), r.ParentTokens, r.Prompt))
	}
	return min(own, r.context-1)
}

// computed is how many tokens of a key there are: what is cached, or the prompt of a request that
// decodes.
func (e *Engine) computed(key uint64) int64 {
	tokens := e.cache.get(key)
	for r := e.holders[key]; r != nil; r = r.sibling {
		if r.state == decoding {
			tokens = max(tokens, r.Prompt)
		}
	}
	return tokens
}

// release forgets that a request of its key runs.
func (e *Engine) release(r *request) {
	at := e.holders[r.Key]
	if at == r {
		if r.sibling == nil {
			delete(e.holders, r.Key)
		} else {
			e.holders[r.Key] = r.sibling
		}
	} else {
		for at.sibling != r {
			at = at.sibling
		}
		at.sibling = r.sibling
	}
	r.sibling = nil
}

// shrink evicts what there is no room for beside what runs.
func (e *Engine) shrink() { e.cache.shrink(max(e.config.KVTokens-e.kv, 0)) }
