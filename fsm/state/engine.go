package state

import (
	"cmp"
	"strings"
)

const (
	// EnginesMax bounds the models that have an engine.
	EnginesMax = 4096
	// EngineSpecBytesMax bounds the encoded declaration of an engine.
	EngineSpecBytesMax = 32 << 10
	// NodeEnginesMax bounds the engines that are known of a node.
	NodeEnginesMax = 256
	// EngineMessageBytesMax bounds what a node says of the state of an engine.
	EngineMessageBytesMax = 512
	// SetUpMax is the longest set-up of a model in nanoseconds: 30 days.
	SetUpMax = 30 * 24 * 3600 * 1_000_000_000
	// setUpMemory is of how many set-ups the newest is one, in the mean.
	setUpMemory = 8
)

// EngineState is what a node says of an engine. The numbers are those of the API.
type EngineState uint8

// States of engines.
const (
	EngineWaiting EngineState = 1 + iota
	EngineStarting
	EngineWaking
	EngineReady
	EngineFallingAsleep
	EngineAsleep
	EngineFailed
)

// Engine is how a model is served.
type Engine struct {
	Model string
	// Generation grows with each change of the declaration. No two declarations share one,
	// of whatever model.
	Generation uint64
	// Spec is the encoded declaration, which the state machine does not read.
	Spec []byte
	// SetUpNS is how long it takes to make the model ready: the moving mean of SetUps that
	// nodes have measured; 0: none was.
	SetUpNS int64
	SetUps  uint64
}

// Measured returns the row with one more set-up in its mean, in nanoseconds. The first is
// the mean, and then each counts for an eighth.
func (r *Engine) Measured(ns int64) *Engine {
	e := *r
	if e.SetUps++; e.SetUps == 1 {
		e.SetUpNS = ns
	} else {
		e.SetUpNS += (ns - e.SetUpNS) / setUpMemory
	}
	return &e
}

// NodeEngines is what a node has said of the engines on it. A node that has said nothing has
// none.
type NodeEngines struct {
	Node      NodeID
	Instances []EngineInstance // in the order of Compare
}

// EngineInstance is the engine of a model on a chunk of a node.
type EngineInstance struct {
	Model string
	Chunk Chunk
	State EngineState
	// Generation is that of the declaration that it runs with.
	Generation uint64
	// Message says why it is in that state, for people.
	Message string
	// How often it was started, woken, put to sleep, and failed, since the node registered.
	Starts, Wakes, Sleeps, Failures uint64
	// ChangedAt is the log time of the report that changed any of it.
	ChangedAt int64
}

// Compare orders instances by where and what they are.
func (r *EngineInstance) Compare(o *EngineInstance) int {
	return cmp.Or(cmp.Compare(r.Chunk.First, o.Chunk.First), cmp.Compare(r.Chunk.Units, o.Chunk.Units), strings.Compare(r.Model, o.Model))
}

func (r *Engine) code(c *codec) {
	c.text(&r.Model)
	number(c, &r.Generation)
	c.bytes(&r.Spec)
	signed(c, &r.SetUpNS)
	number(c, &r.SetUps)
}

func (r *NodeEngines) code(c *codec) {
	number(c, &r.Node)
	list(c, &r.Instances, func(c *codec, i *EngineInstance) {
		c.text(&i.Model)
		i.Chunk.code(c)
		number(c, &i.State)
		number(c, &i.Generation)
		c.text(&i.Message)
		for _, n := range []*uint64{&i.Starts, &i.Wakes, &i.Sleeps, &i.Failures} {
			number(c, n)
		}
		signed(c, &i.ChangedAt)
	})
}

// PutEngine stores the declaration of an engine.
func (s *State) PutEngine(r *Engine) { db(s).engines.put(db(s).enc, r.Model, r) }

// DeleteEngine forgets how a model is served.
func (s *State) DeleteEngine(model string) { db(s).engines.delete(model) }

// Engine returns how a model is served, nil if nothing is declared.
func (s *State) Engine(model string) *Engine { return db(s).engines.get(model) }

// Engines visits all engines by model.
func (s *State) Engines(fn func(*Engine) bool) { db(s).engines.scan("", fn) }

// EngineCount returns how many models have an engine.
func (s *State) EngineCount() int { return db(s).engines.rows.Len() }

// SetUpNS is how long it takes to make the model of a demand resident, in nanoseconds: what the
// action says, or else what was measured of the model's engine.
func (s *State) SetUpNS(d *GPUDemand) int64 {
	if d.SetUpNS > 0 || d.Model == "" {
		return d.SetUpNS
	}
	if e := s.Engine(d.Model); e != nil {
		return e.SetUpNS
	}
	return 0
}

// PutNodeEngines stores what a node has said of its engines; an empty list is no row.
func (s *State) PutNodeEngines(r *NodeEngines) {
	if len(r.Instances) == 0 {
		db(s).nodeEngines.delete(r.Node)
		return
	}
	db(s).nodeEngines.put(db(s).enc, r.Node, r)
}

// DeleteNodeEngines forgets what a node has said of its engines.
func (s *State) DeleteNodeEngines(id NodeID) { db(s).nodeEngines.delete(id) }

// EnginesOn returns what a node has said of its engines, in the order of Compare; the caller
// must not change it.
func (s *State) EnginesOn(id NodeID) []EngineInstance {
	if r := db(s).nodeEngines.get(id); r != nil {
		return r.Instances
	}
	return nil
}

// AllNodeEngines visits the nodes that have said something of their engines.
func (s *State) AllNodeEngines(fn func(*NodeEngines) bool) { db(s).nodeEngines.scan(0, fn) }

// Residencies visits what is resident, node by node.
func (s *State) Residencies(fn func(*Residency) bool) { db(s).residency.scan(0, fn) }
