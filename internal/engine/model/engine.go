package model

import (
	"errors"
	"fmt"
)

// Errors of calls.
var (
	// ErrTooLong means that a request would need more tokens than the KV cache holds.
	ErrTooLong = errors.New("simulated engine: the request needs more tokens than the KV cache holds")
	// ErrInvalid means that a request or a configuration makes no sense.
	ErrInvalid = errors.New("simulated engine: not valid")
	// ErrBusy means that the engine sleeps, wakes or loads weights.
	ErrBusy = errors.New("simulated engine: it is doing something else; wait for its end")
)

const (
	psPerNS = 1000
	// maxNS is the last time that the model knows: 100 days. Times start at 0.
	maxNS = 100 * 24 * 3600 * 1_000_000_000
	never = -1
)

// DefaultChunkTokens is how many tokens of prompts a step computes, which is SGLang's
// chunked_prefill_size on large GPUs; vLLM's max_num_batched_tokens has other defaults.
const DefaultChunkTokens = 8192

// Preemption says what happens to a running request when one of a higher priority waits.
type Preemption uint8

// Kinds of preemption.
const (
	// PreemptForMemory: nothing happens, unless the KV cache is full. Then the request that ranks
	// lowest goes back to the queue, and is computed again (vLLM).
	PreemptForMemory Preemption = iota
	// PreemptKeep: if there is no slot or memory for the waiting request, the one that ranks
	// lowest goes back to the queue. Its prefix stays in the cache, until it is evicted (Heddle §4.2).
	PreemptKeep
	// PreemptRecompute: the same, without its prefix.
	PreemptRecompute
)

// Config is what an engine is.
type Config struct {
	Profile *Profile
	// Slots bounds the requests that run at once; 0: no bound but memory.
	Slots int
	// KVTokens is how many tokens the KV cache holds; 0: as the profile says.
	KVTokens int64
	// ChunkTokens is how many tokens of prompts a step computes at most; 0: DefaultChunkTokens.
	ChunkTokens int64
	Preemption  Preemption
	// Version is the version of the weights at the start.
	Version uint64
}

// Request is one generation.
type Request struct {
	// ID is unique among the requests that have not ended.
	ID uint64
	// Key names what the prompt continues, such as a trajectory: below 1<<63. When the request
	// ends, its tokens are kept under it. 0: they are not kept.
	Key uint64
	// Match is how many tokens of the prompt agree with what is kept under Key; 0: as many as are
	// there. At least one token of a prompt is always computed.
	Match int64
	// Parent names a prefix of ParentTokens tokens that other keys share, such as the prompt of
	// a group. It is used if Key has less.
	Parent       uint64
	ParentTokens int64
	// Prompt and Output are in tokens, at least 1. The request ends after Output tokens.
	Prompt, Output int64
	// Priority: the highest goes first. Equals go in the order of their arrival.
	Priority int64
}

// Kind says what an event is about.
type Kind uint8

// Kinds of events.
const (
	// Started: a request was admitted. Cached tokens of its prompt were in the cache. It may start
	// again after Preempted.
	Started Kind = iota + 1
	// FirstToken: the prompt is computed, and there is one token more.
	FirstToken
	// Preempted: it is in the queue again.
	Preempted
	// Finished: it has all its tokens.
	Finished
	// Canceled: it has left before its end.
	Canceled
	// Updated, Asleep, Awake: what UpdateWeights, Sleep and Wake began has ended.
	Updated
	Asleep
	Awake
)

// Event is something that happened.
type Event struct {
	// AtNS is the end of the step, rounded up to nanoseconds.
	AtNS int64
	Kind Kind
	ID   uint64
	// Tokens is how many tokens the request has generated.
	Tokens int64
	// Cached is how many tokens were in the cache when it started.
	Cached int64
	// Version is that of the weights.
	Version uint64
}

// Engine is one simulated engine. Its methods are not safe for concurrent use. Times are in
// nanoseconds since its beginning, must not decrease and be at most 100 days. Requests that come
// at the time at which a step ends are considered at that end, until Advance is called for it.
type Engine struct {
	config Config

	requests map[uint64]*request
	waiting  queue
	decoding queue
	// prefilling is in the order of admission.
	prefilling []*request
	cache      *cache
	// holders are the running requests by key, linked by sibling.
	holders  map[uint64]*request
	arrivals uint64

	// steps counts those that were done. context is the tokens of what decodes, kv of all that runs.
	steps       int64
	context, kv int64

	span span
	// look is when to look again if no span is computed; never: when something is asked.
	look, seen int64 // ps

	// leaving is how many of the batch were canceled.
	leaving int

	paused, draining, retracting, asleep bool

	op       operation
	version  uint64
	counters Counters
	out      []Event
}

// New returns an engine that has nothing to do, at time 0.
func New(c Config) (*Engine, error) {
	if c.Profile == nil {
		return nil, fmt.Errorf("%w: no profile", ErrInvalid)
	}
	if err := c.Profile.Validate(); err != nil {
		return nil, err
	}
	if c.KVTokens == 0 {
		c.KVTokens = c.Profile.KVTokens
	}
	if c.ChunkTokens == 0 {
		c.ChunkTokens = DefaultChunkTokens
	}
	if c.Slots == 0 {
		c.Slots = tokensMax
	}
	if c.Slots < 0 || c.KVTokens < 2 || c.KVTokens > tokensMax || c.ChunkTokens < 1 || c.ChunkTokens > chunkMax || c.Preemption > PreemptRecompute {
		return nil, fmt.Errorf("%w: %d slots, %d tokens of KV cache, %d tokens of a chunk", ErrInvalid, c.Slots, c.KVTokens, c.ChunkTokens)
	}
	return &Engine{
		config: c, requests: map[uint64]*request{}, holders: map[uint64]*request{}, cache: newCache(),
		waiting: queue{before: byRank}, decoding: queue{before: byEnd}, look: never, version: c.Version,
	}, nil
}

// Submit adds a request to the queue. The error is ErrInvalid or ErrTooLong.
func (e *Engine) Submit(nowNS int64, r Request) error {
	switch {
	case r.Prompt < 1 || r.Output < 1 || r.Match < 0 || r.ParentTokens < 0 || r.Key>>63 != 0:
		return fmt.Errorf("%w: request %d has a prompt of %d tokens and an output of %d", ErrInvalid, r.ID, r.Prompt, r.Output)
	case e.requests[r.ID] != nil:
		return fmt.Errorf("%w: request %d has not ended", ErrInvalid, r.ID)
	case r.Prompt > e.config.KVTokens || r.Output > e.config.KVTokens-r.Prompt:
		return fmt.Errorf("%w: request %d needs %d and %d of %d", ErrTooLong, r.ID, r.Prompt, r.Output, e.config.KVTokens)
	}
	e.reach(nowNS)
	if r.Key == 0 {
		r.Key = 1<<63 | r.ID
	}
	e.arrivals++
	q := &request{Request: r, seq: e.arrivals}
	e.requests[r.ID] = q
	e.waiting.add(q)
	e.counters.Submitted++
	if e.mayAdmit() {
		e.attend()
	}
	return nil
}

// Cancel ends a request, with an event, and returns how many tokens it has generated. A running
// one leaves at the end of the step.
func (e *Engine) Cancel(nowNS int64, id uint64) (tokens int64, ok bool) {
	e.reach(nowNS)
	r := e.requests[id]
	if r == nil {
		return 0, false
	}
	tokens = e.generated(r)
	return tokens, e.cancel(r)
}

func (e *Engine) cancel(r *request) bool {
	switch {
	case r.canceled:
		return false
	case r.state == waiting:
		e.waiting.remove(r)
		e.gone(e.seen, r)
		if e.mayAdmit() { // the next one may need less memory
			e.attend()
		}
		return true
	}
	r.canceled = true
	e.leaving++
	e.attend()
	return true
}

// SetPriority changes the priority of a request that has not ended.
func (e *Engine) SetPriority(nowNS int64, id uint64, priority int64) (ok bool) {
	e.reach(nowNS)
	r := e.requests[id]
	if r == nil {
		return false
	}
	if r.state != waiting {
		r.Priority = priority
	} else {
		e.waiting.remove(r)
		r.Priority = priority
		e.waiting.add(r)
	}
	if e.mayAdmit() {
		e.attend()
	}
	return true
}

// Generated is how many tokens a request that has not ended has generated.
func (e *Engine) Generated(nowNS int64, id uint64) (tokens int64, ok bool) {
	e.reach(nowNS)
	r := e.requests[id]
	if r == nil {
		return 0, false
	}
	return e.generated(r), true
}

// NextEvent is when Advance has something to do, unless something is asked before.
func (e *Engine) NextEvent() (ns int64, ok bool) {
	if at := e.next(); at != never {
		return up(at), true
	}
	return 0, false
}

// NextToken is when the step in progress ends: there are no more tokens before.
func (e *Engine) NextToken(nowNS int64) (ns int64, ok bool) {
	e.reach(nowNS)
	if !e.span.active() {
		return 0, false
	}
	k := min(e.span.doneBy(e.seen)+1, e.span.steps)
	return up(e.span.at(k)), true
}

// Advance goes on to a time, and appends what happened until then, also in calls since the last
// Advance. Events are in the order of time.
func (e *Engine) Advance(nowNS int64, into []Event) []Event {
	now := nowNS * psPerNS
	e.reach(nowNS)
	for at := e.next(); at != never && at <= now; at = e.next() {
		e.boundary(at)
	}
	into = append(into, e.out...)
	e.out = e.out[:0]
	return into
}

// reach goes on to before a time, so that what is asked at that time is considered at a step that
// ends then.
func (e *Engine) reach(nowNS int64) {
	now := nowNS * psPerNS
	if now < e.seen || nowNS > maxNS {
		panic(fmt.Sprintf("simulated engine: time %d ns after %d ps", nowNS, e.seen))
	}
	for at := e.next(); at != never && at < now; at = e.next() {
		e.boundary(at)
	}
	e.seen = now
}

// next is when something happens, in ps.
func (e *Engine) next() int64 {
	if e.span.active() {
		return e.span.at(e.span.steps)
	}
	return e.look
}

// attend has the batch looked at when the step in progress ends, or now.
func (e *Engine) attend() {
	if e.span.active() {
		e.span.steps = e.span.untilAfter(e.seen)
	} else if e.look == never || e.look > e.seen {
		e.look = e.seen
	}
}

func (e *Engine) tell(kind Kind, at int64, r *request) {
	event := Event{AtNS: up(at), Kind: kind, Version: e.version}
	if r != nil {
		event.ID, event.Tokens = r.ID, e.generated(r)
		if kind == Started {
			event.Cached = r.context - r.left
		}
	}
	e.out = append(e.out, event)
}

// up is a time in nanoseconds, rounded up.
func up(ps int64) int64 { return (ps + psPerNS - 1) / psPerNS }
