package model

import "slices"

// span is steps with one batch: several that only decode, or one with tokens of prompts.
type span struct {
	begin int64 // ps
	steps int64 // 0: none
	// A step takes base, and read for each token of context. The batch of decoding requests
	// lengthens the context by as much in each step.
	base, read, context, batch int64
	chunks                     []chunk
}

// chunk is the tokens of a prompt that a step computes.
type chunk struct {
	of     *request
	tokens int64
}

func (s *span) active() bool { return s.steps > 0 }

// at is when the first n steps end.
func (s *span) at(n int64) int64 {
	return s.begin + n*s.base + s.read*(n*s.context+s.batch*(n*(n-1)/2))
}

// doneBy is how many steps end until a time.
func (s *span) doneBy(at int64) int64 {
	if !s.active() {
		return 0
	}
	return s.search(func(n int64) bool { return s.at(n) > at }) - 1
}

// untilAfter is how many steps it takes until one ends at a time or after it.
func (s *span) untilAfter(at int64) int64 {
	return min(s.steps, s.search(func(n int64) bool { return s.at(n) >= at }))
}

// search is the least number of steps, from 1, for which it is true; one more than there are if
// it is true for none.
func (s *span) search(is func(n int64) bool) int64 {
	low, high := int64(1), s.steps+1
	for low < high {
		if middle := (low + high) / 2; is(middle) {
			high = middle
		} else {
			low = middle + 1
		}
	}
	return low
}

// boundary is what happens when steps have ended, at a time.
func (e *Engine) boundary(at int64) {
	e.look = never
	e.settle(at)
	e.shrink() // as during the steps, when all that leaves now was still there
	e.leave(at)
	if e.retracting {
		e.retract(at)
	}
	e.shrink()
	if e.operate(at) || e.paused || e.asleep {
		return
	}
	relieved := e.relieve(at)
	if !relieved && !e.draining {
		e.admit(at)
		e.shrink()
	}
	e.plan(at)
	if relieved { // the queue is looked at after the next step
		e.span.steps = min(e.span.steps, 1)
	}
}

// settle counts the steps of the span.
func (e *Engine) settle(at int64) {
	n := e.span.steps
	if n == 0 {
		return
	}
	batch := int64(e.decoding.Len())
	e.span.steps = 0
	e.steps += n
	e.context += n * batch
	e.kv += n * batch
	e.counters.Generated += n * batch
	for _, c := range e.span.chunks {
		e.counters.Computed += c.tokens
		if c.of.left -= c.tokens; c.of.left == 0 {
			e.decode(c.of)
			e.tell(FirstToken, at, c.of)
		}
	}
	e.span.chunks = e.span.chunks[:0]
	e.prefilling = slices.DeleteFunc(e.prefilling, func(r *request) bool { return r.state != prefilling })
}

// decode has a request decode whose prompt is computed, with its first token.
func (e *Engine) decode(r *request) {
	r.state = decoding
	r.begin = e.steps - 1
	r.end = r.begin + r.Output - r.done
	e.decoding.add(r)
	e.context += r.context + 1
	e.kv++
	e.counters.Generated++
	if r.Parent != 0 && r.Parent != r.Key {
		if tokens := min(r.ParentTokens, r.Prompt); e.cache.get(r.Parent) < tokens {
			e.cache.put(r.Parent, tokens)
		}
	}
}

// leave takes those out of the batch that have finished or were canceled.
func (e *Engine) leave(at int64) {
	for e.decoding.Len() > 0 && e.decoding.first().end <= e.steps {
		r := e.decoding.first()
		e.tell(Finished, at, r)
		e.counters.Finished++
		e.stop(r, true)
		e.forget(r)
	}
	if e.leaving == 0 {
		return
	}
	e.leaving = 0
	for _, r := range e.running() {
		if r.canceled {
			e.stop(r, true)
			e.gone(at, r)
		}
	}
}

// running are the requests in the batch, in the order of arrival.
func (e *Engine) running() []*request {
	all := slices.Concat(e.prefilling, e.decoding.of)
	slices.SortFunc(all, byArrival)
	return all
}

// stop takes a request out of the batch. What it has in the KV cache is kept or dropped.
func (e *Engine) stop(r *request, keep bool) {
	tokens := r.context
	if r.state == decoding {
		tokens += e.steps - r.begin
		e.context -= tokens
		e.decoding.remove(r)
		r.done += e.steps - r.begin
	} else {
		e.prefilling = slices.DeleteFunc(e.prefilling, func(p *request) bool { return p == r })
	}
	e.kv -= tokens
	r.state = waiting
	e.release(r)
	if tokens -= r.left; keep && tokens > e.cache.get(r.Key) {
		e.cache.put(r.Key, tokens)
	}
}

// gone ends a request that was canceled.
func (e *Engine) gone(at int64, r *request) {
	e.tell(Canceled, at, r)
	e.counters.Canceled++
	e.forget(r)
}

// forget ends a request that is in no batch.
func (e *Engine) forget(r *request) {
	delete(e.requests, r.ID)
	if r.Key>>63 != 0 {
		e.cache.drop(r.Key)
	}
}

// generated is how many tokens a request has by now.
func (e *Engine) generated(r *request) int64 {
	if r.state != decoding {
		return r.done
	}
	return min(r.done+e.steps-r.begin+e.span.doneBy(e.seen), r.Output)
}

// plan begins the steps that follow, until the batch changes.
func (e *Engine) plan(at int64) {
	batch := int64(e.decoding.Len())
	if batch == 0 && len(e.prefilling) == 0 {
		return
	}
	p := e.config.Profile
	e.span = span{begin: at, steps: 1, read: p.KVReadPS, context: e.context, batch: batch, chunks: e.span.chunks[:0]}
	budget := e.config.ChunkTokens
	var prefill int64
	for _, r := range e.prefilling {
		if budget == 0 {
			break
		}
		tokens := min(budget, r.left)
		budget -= tokens
		prefill += p.prefillPS(tokens, r.context-r.left)
		e.span.chunks = append(e.span.chunks, chunk{r, tokens})
	}
	e.span.base = p.StepPS(batch+int64(len(e.span.chunks))) + prefill
	if prefill == 0 && len(e.span.chunks) == 0 {
		// Until one finishes, or the KV cache is full.
		e.span.steps = min(e.decoding.first().end-e.steps, (e.config.KVTokens-e.kv)/batch, spanMax)
	}
}
