package chunks

import (
	"flag"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"rota/agent/plan"
)

// TestAnyHistory lets a cluster desire engines, attempts use them, and steps succeed, fail or
// take their time, in any order. It keeps its own account of the GPU memory and checks that no
// GPU has more than it has, that no healthy engine is touched that an attempt uses, and that
// everything desired becomes ready once nothing fails.
func TestAnyHistory(t *testing.T) {
	// Histories are short, and most of them do not get far.
	if f := flag.Lookup("rapid.checks"); f.Value.String() == f.DefValue {
		if err := f.Value.Set("2000"); err != nil {
			t.Fatal(err)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		m := newMachine(t)
		t.Repeat(map[string]func(*rapid.T){
			"desire":      m.desire,
			"desire less": m.desireLess,
			"use":         m.use,
			"release":     m.release,
			"answer":      m.answer,
			"answers":     func(t *rapid.T) { m.answer(t); m.answer(t); m.answer(t) },
			"goes well":   func(*rapid.T) { m.goesWell() },
			"on it goes":  func(t *rapid.T) { m.desire(t); m.goesWell() },
			"late answer": m.lateAnswer,
			"crash":       m.crash,
			"kill all":    m.killAll,
			"pass":        m.pass,
			"":            m.next,
		})
		m.settle()
	})
}

const (
	gpus   = 2
	memory = 80
	hostGB = 10
)

// models are those that are desired, on any chunk. There are few, so that they come back.
var models = []Want{
	{Engine: plan.Engine{Model: "a", GPUs: 1}, Version: Version{MemoryBytes: 80}, Sleeps: true, AsleepBytes: 4},
	{Engine: plan.Engine{Model: "b", GPUs: 1}, Version: Version{MemoryBytes: 40}, Sleeps: true, AsleepBytes: 11},
	{Engine: plan.Engine{Model: "c", GPUs: 1}, Version: Version{MemoryBytes: 40}, Sleeps: true},
	{Engine: plan.Engine{Model: "d", GPUs: 2}, Version: Version{MemoryBytes: 80}, Sleeps: true, AsleepBytes: 6},
	{Engine: plan.Engine{Model: "e", GPUs: 2}, Version: Version{MemoryBytes: 60}},
}

// process is an engine that exists, as the node has it. holds says that it may hold memory.
type process struct {
	want   Want
	holds  bool
	asleep bool
	broken bool
}

type machine struct {
	t      *rapid.T
	c      *Chunks
	now    int64
	wants  map[plan.Engine]Want
	exists map[plan.Engine]*process
	used   map[plan.Engine]bool
	todo   map[plan.Engine]Step
	late   []Step // that a stop has overtaken, and that will be answered
	limits Limits
	kills  bool // everything must end
}

func newMachine(t *rapid.T) *machine {
	limits := Limits{GPUs: gpus, MemoryBytes: memory, AsleepMax: rapid.IntRange(0, 3).Draw(t, "asleep max")}
	if rapid.Bool().Draw(t, "host memory is bounded") {
		limits.AsleepBytesMax = hostGB
	}
	return &machine{
		t: t, c: New(limits), now: second, limits: limits, wants: map[plan.Engine]Want{}, exists: map[plan.Engine]*process{},
		used: map[plan.Engine]bool{}, todo: map[plan.Engine]Step{},
	}
}

// desire has one more engine ready, in place of those that leave it no memory.
func (m *machine) desire(t *rapid.T) {
	w := rapid.SampledFrom(models).Draw(t, "model")
	w.Engine.First = w.Engine.GPUs * rapid.IntRange(0, gpus/w.Engine.GPUs-1).Draw(t, "chunk")
	w.Generation = rapid.SampledFrom([]uint64{1, 1, 1, 1, 2}).Draw(t, "generation")
	e := w.Engine
	delete(m.wants, e)
	for gpu := e.First; gpu < e.First+e.GPUs; gpu++ {
		for m.wanted(gpu)+w.MemoryBytes > memory {
			m.drop(gpu)
		}
	}
	m.wants[e] = w
	m.tell()
}

// wanted is the memory of a GPU that desired engines take.
func (m *machine) wanted(gpu int) (sum uint64) {
	for e, w := range m.wants {
		if e.Has(gpu) {
			sum += w.MemoryBytes
		}
	}
	return sum
}

func (m *machine) drop(gpu int) {
	for _, e := range slices.SortedFunc(maps.Keys(m.wants), plan.Engine.Compare) {
		if e.Has(gpu) {
			delete(m.wants, e)
			return
		}
	}
}

func (m *machine) desireLess(t *rapid.T) {
	delete(m.wants, pick(t, m.wants))
	m.tell()
}

func (m *machine) tell() {
	var all []Want
	for _, e := range slices.SortedFunc(maps.Keys(m.wants), plan.Engine.Compare) {
		all = append(all, m.wants[e])
	}
	m.c.Desire(all)
}

func pick[V any](t *rapid.T, from map[plan.Engine]V) plan.Engine {
	if len(from) == 0 {
		t.Skip()
	}
	return rapid.SampledFrom(slices.SortedFunc(maps.Keys(from), plan.Engine.Compare)).Draw(t, "which")
}

// use lets an attempt use an engine that is ready.
func (m *machine) use(t *rapid.T) {
	e := pick(t, m.exists)
	if s, _ := m.c.Status(e); s.State != StateReady {
		t.Skip()
	}
	m.used[e] = true
}

func (m *machine) release(t *rapid.T) { delete(m.used, pick(t, m.used)) }

func (m *machine) pass(t *rapid.T) { m.now += rapid.Int64Range(1, 90).Draw(t, "seconds") * second }

func (m *machine) killAll(*rapid.T) {
	m.c.KillAll()
	m.kills = true
	m.wants = map[plan.Engine]Want{}
}

// crash ends a process that is left alone.
func (m *machine) crash(t *rapid.T) {
	e := pick(t, m.exists)
	if _, busy := m.todo[e]; busy {
		t.Skip()
	}
	if rapid.Bool().Draw(t, "gone") {
		delete(m.exists, e)
		m.c.Lost(e, Outcome{Gone: true, Message: "it ended"}, m.now)
		return
	}
	m.exists[e].broken = true
	m.c.Lost(e, Outcome{Message: "it does not answer"}, m.now)
}

// answer does a step, well or not.
func (m *machine) answer(t *rapid.T) {
	e := pick(t, m.todo)
	m.perform(e, rapid.IntRange(0, 3).Draw(t, "how"))
}

// perform does a step: well with 0 and 1, else badly, the engine being gone with 3.
func (m *machine) perform(e plan.Engine, how int) {
	s, p := m.todo[e], m.exists[e]
	delete(m.todo, e)
	switch {
	case s.Action == Stop && how == 2:
		m.c.Done(e, s.Number, Outcome{Failed: true, Message: "it does not die"}, m.now)
	case s.Action == Stop:
		delete(m.exists, e)
		m.c.Done(e, s.Number, Outcome{Gone: true}, m.now)
	case how == 3:
		delete(m.exists, e)
		m.c.Done(e, s.Number, Outcome{Failed: true, Gone: true, Message: "it ended"}, m.now)
	case how == 2:
		p.broken = true
		m.c.Done(e, s.Number, Outcome{Failed: true, Message: "it answered 500"}, m.now)
	default:
		if s.Action == Sleep {
			p.holds, p.asleep = false, true
		} else {
			p.asleep = false
		}
		m.c.Done(e, s.Number, Outcome{}, m.now)
	}
}

// goesWell lets everything be done that is due, and succeed.
func (m *machine) goesWell() {
	for range 3 {
		m.ask()
		for _, e := range slices.SortedFunc(maps.Keys(m.todo), plan.Engine.Compare) {
			m.perform(e, 0)
		}
	}
}

// lateAnswer answers a step that a stop has overtaken. Nobody may believe it.
func (m *machine) lateAnswer(t *rapid.T) {
	if len(m.late) == 0 {
		t.Skip()
	}
	s := m.late[0]
	m.late = m.late[1:]
	m.c.Done(s.Want.Engine, s.Number, Outcome{Failed: true, Gone: rapid.Bool().Draw(t, "gone"), Message: "broken off"}, m.now)
}

// next asks for steps and begins them.
func (m *machine) next(t *rapid.T) {
	if rapid.Bool().Draw(t, "ask") {
		m.ask()
	}
}

func (m *machine) ask() (again int64) {
	steps, again := m.c.Next(m.now, true, func(e plan.Engine) bool { return m.used[e] })
	if again <= m.now {
		m.t.Fatalf("to be asked again at %d, and it is %d", again, m.now)
	}
	for _, s := range steps {
		m.begin(s)
	}
	m.kills = false
	m.check()
	return again
}

func (m *machine) begin(s Step) {
	e := s.Want.Engine
	p := m.exists[e]
	if old, busy := m.todo[e]; busy && (old.Action == Stop || s.Action != Stop) {
		m.t.Fatalf("%v: step %d while step %d is under way", e, s.Action, old.Action)
	}
	switch s.Action {
	case Start:
		if p != nil {
			m.t.Fatalf("%v is started and runs", e)
		}
		m.exists[e] = &process{want: s.Want, holds: true}
	case Wake:
		if p == nil || !p.asleep || p.broken {
			m.t.Fatalf("%v is woken and does not sleep: %+v", e, p)
		}
		p.holds = true
	case Sleep, Stop:
		if m.used[e] && p != nil && !p.broken && !m.kills {
			m.t.Fatalf("%v leaves, and an attempt uses it", e)
		}
		if s.Action == Sleep && (p == nil || p.broken || p.asleep || !p.want.Sleeps) {
			m.t.Fatalf("%v is put to sleep: %+v", e, p)
		}
		if p != nil && p.broken {
			delete(m.used, e) // what used it fails
		}
	}
	if m.kills {
		delete(m.used, e)
	}
	if old, busy := m.todo[e]; busy {
		m.late = append(m.late, old)
	}
	m.todo[e] = s
}

// check adds up the memory of what exists.
func (m *machine) check() {
	for gpu := range gpus {
		var sum uint64
		for e, p := range m.exists {
			if e.Has(gpu) && p.holds {
				sum += p.want.MemoryBytes
			}
		}
		if sum > memory {
			m.t.Fatalf("engines hold %d of the %d bytes of GPU %d", sum, memory, gpu)
		}
	}
	asleep, bytes := 0, uint64(0)
	for e, p := range m.exists {
		if p.asleep || m.todo[e].Action == Sleep {
			asleep++
			bytes += p.want.AsleepBytes
		}
	}
	if asleep > m.limits.AsleepMax || m.limits.AsleepBytesMax > 0 && bytes > m.limits.AsleepBytesMax {
		m.t.Fatalf("%d engines sleep with %d bytes, limits %+v", asleep, bytes, m.limits)
	}
}

// settle lets everything succeed, and no attempt use an engine for ever.
func (m *machine) settle() {
	m.tell()
	m.used = map[plan.Engine]bool{}
	for range 200 {
		again := m.ask()
		if len(m.todo) == 0 {
			if again == never {
				break
			}
			m.now = again
			continue
		}
		for _, e := range slices.SortedFunc(maps.Keys(m.todo), plan.Engine.Compare) {
			m.perform(e, 0)
		}
	}
	for e, w := range m.wants {
		s, _ := m.c.Status(e)
		if s.State != StateReady || m.exists[e] == nil || m.exists[e].want.Version != w.Version {
			m.t.Fatalf("%v is not ready in the end: %+v, %+v, wants %+v", e, s, m.exists[e], w)
		}
	}
	for e, p := range m.exists {
		if _, wanted := m.wants[e]; !wanted && !p.asleep {
			m.t.Fatalf("%v is still awake: %+v", e, p)
		}
	}
}
