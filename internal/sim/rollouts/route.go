package rollouts

import place "rota/sched/place/worker"

// unevenMost is how many requests one worker may have more than another before the cache-aware
// router looks at load alone: the threshold of Heddle §7, and of SGLang's router.
const unevenMost = 32

// route returns the worker for a request.
func (w *world) route(r *run) int {
	switch w.policy.routing {
	case pinned:
		return r.id % len(w.workers)
	case leastRequests:
		return w.fewest()
	case cacheAware:
		return w.cached(r)
	case stickyLeast:
		if r.worker < 0 {
			return w.fewest()
		}
		return r.worker
	default:
		return r.target
	}
}

// fewest is the worker with the fewest requests, the first of several.
func (w *world) fewest() (at int) {
	for i, o := range w.workers {
		if o.requests < w.workers[at].requests {
			at = i
		}
	}
	return at
}

// cached is the worker with the longest prefix of a request: its own, or for a first request
// that of its siblings. A prefix that is nowhere goes where the fewest requests are, and so does
// any while the load is uneven.
func (w *world) cached(r *run) int {
	least := w.fewest()
	most := 0
	for _, o := range w.workers {
		most = max(most, o.requests)
	}
	switch {
	case most-w.workers[least].requests > unevenMost:
		return least
	case r.worker >= 0:
		return r.worker
	case w.siblings[r.Group] >= 0:
		return w.siblings[r.Group]
	}
	return least
}

// priority of a request, the highest first; equal ones in the order in which they came.
func (w *world) priority(r *run) int64 {
	switch w.policy.ordering {
	case leastAttained:
		return -int64(level(r.attained))
	case longestFirst:
		return int64(place.Priority(uint64(r.predicted)))
	default:
		return 0
	}
}

// level is the queue of a service attained: each holds twice as much as the one before
// (Autellix discretizes service so that programs of about the same do not preempt each other).
func level(tokens int64) (n int) {
	for ; tokens > 0; tokens >>= 1 {
		n++
	}
	return n
}
