package engine

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	rotav1 "rota/api/gen/rota/v1"

	"rota/agent/engine/chunks"
	"rota/agent/journal"
	"rota/agent/plan"
	"rota/agent/runtime"
)

// Launch is what an engine is started with.
type Launch struct {
	Key    plan.Key
	Spec   *rotav1.EngineSpec
	Engine plan.Engine
	Port   int
}

// Options of a Manager.
type Options struct {
	// Record is the path of the file that says which engines there are.
	Record string
	Logger hclog.Logger
	// Runtime is the connection to the supervisor; nil: there is none now.
	Runtime func() runtime.Runtime
	// Describe says what the supervisor is to start, or in words why nothing.
	Describe func(Launch) (runtime.Spec, error)
	// Tell changes what is known of the engines.
	Tell func(func(c *chunks.Chunks, now int64))
	// GPUMemory returns how much memory of a GPU is in use, by anything, and how much it has;
	// nil: nobody can say.
	GPUMemory func(gpu int) (used, total uint64, err error)
	// GPUUsers says in words which processes have memory of a GPU; nil or an empty answer: nobody
	// can say.
	GPUUsers func(gpu int) string
	// WatchEvery is how often an engine that is ready is probed, ProbesMax how many probes in a
	// row have to fail before it is restarted. 0: 2 s and 3.
	WatchEvery time.Duration
	ProbesMax  int
}

// Manager does the steps that package chunks decides. Its methods may be called concurrently.
type Manager struct {
	Options
	http   *http.Client
	record record
	// recording is held while the record is written. That takes as long as the disk does, and only
	// steps wait for it: what the agent asks under a lock of its own needs mu alone.
	recording sync.Mutex
	// unrecorded: the record could not be written, so Watch tries again.
	unrecorded atomic.Bool

	mu sync.Mutex
	// processes are the engines that exist, or may.
	processes map[plan.Engine]*process
	// orphans are engines that the record does not know. They have to end before any GPU memory
	// is given away.
	orphans map[plan.Key]*process
	// specs are those of the engines that should be ready.
	specs map[plan.Engine]*rotav1.EngineSpec
	// newest is the number of the newest step of an engine. A start before it does nothing.
	newest      map[plan.Engine]uint64
	incarnation uint64
	number      uint64 // of the newest engine
	connected   bool
	tasks       sync.WaitGroup
}

// process is an engine that exists, or may. What is below mu is the manager's.
type process struct {
	runs chunks.Want
	spec *rotav1.EngineSpec // nil: of an orphan
	key  plan.Key
	port int
	// exited is closed when nothing of it is alive; exit says how it ended then.
	exited chan struct{}

	exit plan.Exit
	left left
	// begun: the supervisor was asked to start it, or an earlier agent has. launched is closed when it
	// is known what was started.
	begun    bool
	launched chan struct{}
	// cancel ends the step that is under way; nil: none is.
	cancel context.CancelFunc
	// stopping: nothing else may be done to it any more.
	stopping bool
	// failedProbes in a row while it is ready. attended: a probe, or the kill of an orphan, is
	// under way.
	failedProbes int
	attended     bool
}

// New reads the record of an earlier agent. A damaged one is set aside: what runs is then
// stopped, since nobody knows what it is.
func New(o Options) (*Manager, error) {
	if o.WatchEvery == 0 {
		o.WatchEvery = 2 * time.Second
	}
	if o.ProbesMax == 0 {
		o.ProbesMax = 3
	}
	m := &Manager{Options: o, http: httpClient(), record: record{o.Record}, processes: map[plan.Engine]*process{},
		orphans: map[plan.Key]*process{}, newest: map[plan.Engine]uint64{}}
	entries, err := m.record.read()
	if errors.Is(err, ErrDamaged) {
		aside, asideErr := journal.SetAside(o.Record)
		if asideErr != nil {
			return nil, errors.Join(err, asideErr)
		}
		m.Logger.Error("the record of engines is damaged; stopping those that run", "error", err, "kept_as", aside)
		entries, err = nil, nil
	}
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		p := &process{runs: e.Runs, spec: new(rotav1.EngineSpec), key: e.Key, port: e.Port, exited: make(chan struct{}), begun: true, launched: closed(), left: e.Left}
		if err := p.spec.UnmarshalVT(e.Spec); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
		}
		m.processes[e.Runs.Engine] = p
		m.number = max(m.number, e.Key.Action)
	}
	return m, nil
}

func closed() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}

// Recorded are the engines that may exist, by model and chunk.
func (m *Manager) Recorded() (all []plan.Engine) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for e := range m.processes {
		all = append(all, e)
	}
	slices.SortFunc(all, plan.Engine.Compare)
	return all
}

// Desire tells how the engines that should be ready are run.
func (m *Manager) Desire(specs map[plan.Engine]*rotav1.EngineSpec) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.specs = specs
}

// Open begins an incarnation, whose number is part of the keys of engines that start. It
// returns whether an engine is of another one.
func (m *Manager) Open(incarnation uint64) (older func(plan.Engine) bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.incarnation = incarnation
	old := map[plan.Engine]bool{}
	for e, p := range m.processes {
		old[e] = p.key.Incarnation != incarnation
	}
	return func(e plan.Engine) bool { return old[e] }
}

// URL is the address of an engine that exists; empty: it does not.
func (m *Manager) URL(e plan.Engine) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p := m.processes[e]; p != nil && p.port != 0 {
		return URL(p.port)
	}
	return ""
}

// Lives reports whether a process of an engine may exist.
func (m *Manager) Lives(e plan.Engine) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.processes[e]
	return p != nil && !p.ceased()
}

// Connected tells what a new connection to the supervisor found, and what has to be told of it
// while nothing else happens: engines that are gone, and the first time what can be taken over.
func (m *Manager) Connected(running []plan.Running, ended []plan.Exit) func(c *chunks.Chunks, now int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	first := !m.connected
	m.connected = true
	runs := map[plan.Key]bool{}
	for _, r := range running {
		runs[r.Key] = true
		m.number = max(m.number, r.Key.Action)
		m.adoptOrphan(r.Key)
	}
	exits := map[plan.Key]plan.Exit{}
	for _, e := range ended {
		exits[e.Key] = e
		m.number = max(m.number, e.Key.Action)
	}
	var tell []func(c *chunks.Chunks, now int64)
	for _, p := range m.processes {
		switch {
		case !runs[p.key]:
			exit, known := exits[p.key]
			if !known {
				exit = plan.Exit{Key: p.key, Message: "it was lost with its supervisor"}
			}
			if first {
				delete(m.processes, p.runs.Engine)
			}
			tell = append(tell, m.end(p, exit))
		case first:
			tell = append(tell, p.adopt)
		}
	}
	for k, p := range m.orphans {
		if !runs[k] {
			m.end(p, exits[k])
		}
	}
	return func(c *chunks.Chunks, now int64) {
		for _, f := range tell {
			f(c, now)
		}
	}
}

// adopt takes over what an earlier agent has started.
func (p *process) adopt(c *chunks.Chunks, now int64) {
	phase := chunks.Broken
	switch p.left {
	case leftAwake:
		phase = chunks.Ready
	case leftAsleep:
		phase = chunks.Asleep
	}
	c.Adopt(p.runs, phase, now)
}

// adoptOrphan has Watch stop an engine that the record does not know. The caller holds mu.
func (m *Manager) adoptOrphan(k plan.Key) {
	for _, p := range m.processes {
		if p.key == k {
			return
		}
	}
	if m.orphans[k] != nil {
		return
	}
	m.orphans[k] = &process{key: k, exited: make(chan struct{}), begun: true, launched: closed()}
	m.Logger.Warn("stopping an engine that the record does not know", "engine", k)
}

// Orphans reports whether engines run that the record does not know. They may hold memory of any GPU.
func (m *Manager) Orphans() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.orphans) > 0
}

// Exited tells of the end of an engine.
func (m *Manager) Exited(exit plan.Exit) {
	m.mu.Lock()
	p := m.byKey(exit.Key)
	if p == nil {
		m.tasks.Go(func() { m.forget(exit.Key) }) // other ends do not wait for the supervisor
		m.mu.Unlock()
		return
	}
	tell := m.end(p, exit)
	m.mu.Unlock()
	m.Tell(tell)
}

func (m *Manager) byKey(k plan.Key) *process {
	for _, p := range m.processes {
		if p.key == k {
			return p
		}
	}
	return m.orphans[k]
}

// end notes that a process has ended, and returns what has to be told of it. The caller holds
// mu.
func (m *Manager) end(p *process, exit plan.Exit) func(c *chunks.Chunks, now int64) {
	if !m.cease(p, exit) || p.spec == nil {
		return func(*chunks.Chunks, int64) {}
	}
	message := endText(exit)
	if p.cancel == nil { // no step is under way that would see it
		if m.processes[p.runs.Engine] == p {
			delete(m.processes, p.runs.Engine)
		}
		m.tasks.Go(func() { m.drop(p) })
	}
	return func(c *chunks.Chunks, now int64) {
		c.Lost(p.runs.Engine, chunks.Outcome{Gone: true, Message: message}, now)
	}
}

// cease notes how a process ended; false: that was noted before. An orphan is forgotten with that.
// The caller holds mu.
func (m *Manager) cease(p *process, exit plan.Exit) bool {
	if p.ceased() {
		return false
	}
	p.exit = exit
	close(p.exited)
	if m.orphans[p.key] == p {
		delete(m.orphans, p.key)
		m.tasks.Go(func() {
			m.forget(p.key)
			m.Tell(func(*chunks.Chunks, int64) {}) // attempts wait for that
		})
	}
	return true
}

// ceased reports whether nothing of a process is alive.
func (p *process) ceased() bool {
	select {
	case <-p.exited:
		return true
	default:
		return false
	}
}

// endText says how a process ended, with the last line that it wrote.
func endText(e plan.Exit) string {
	text := e.Message
	switch {
	case text != "":
	case e.Signal != 0:
		text = fmt.Sprintf("ended by signal %d", e.Signal)
	default:
		text = fmt.Sprintf("exited with code %d", e.ExitCode)
	}
	lines := strings.Split(strings.TrimSpace(string(e.Stderr)), "\n")
	if last := summary([]byte(lines[len(lines)-1])); last != "" {
		text += ": " + last
	}
	return text
}

// forget has the supervisor forget an end. If that fails, the end is told again.
func (m *Manager) forget(k plan.Key) {
	conn := m.Runtime()
	if conn == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), callMax)
	defer cancel()
	if err := conn.Forget(ctx, []plan.Key{k}); err != nil {
		m.Logger.Debug("the supervisor did not forget an engine", "engine", k, "error", err)
	}
}

// remember writes the record as things are now. The caller does not hold mu.
func (m *Manager) remember() error {
	m.recording.Lock()
	defer m.recording.Unlock()
	entries, err := m.entries()
	if err == nil {
		err = m.record.write(entries)
	}
	if failed := err != nil; m.unrecorded.Swap(failed) != failed && failed {
		m.Logger.Error("the record of engines cannot be written; what runs goes on, no engine starts, and another agent would stop what runs", "error", err)
	}
	return err
}

// entries are what the record is to have.
func (m *Manager) entries() ([]entry, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	entries := make([]entry, 0, len(m.processes))
	for _, p := range m.processes {
		spec, err := p.spec.MarshalVT()
		if err != nil {
			return nil, fmt.Errorf("engines: %w", err)
		}
		entries = append(entries, entry{Runs: p.runs, Key: p.key, Port: p.port, Spec: spec, Left: p.left})
	}
	slices.SortFunc(entries, func(a, b entry) int { return a.Runs.Engine.Compare(b.Runs.Engine) })
	return entries, nil
}

// freePort is a port of loopback that nothing listens on, and no other engine was given. The caller
// holds mu.
func (m *Manager) freePort() (int, error) {
	for range 100 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return 0, fmt.Errorf("no free port: %w", err)
		}
		port := l.Addr().(*net.TCPAddr).Port
		_ = l.Close()
		taken := false
		for _, p := range m.processes {
			taken = taken || p.port == port
		}
		if !taken {
			return port, nil
		}
	}
	return 0, errors.New("no free port that no other engine was given")
}

// Wait returns when everything has ended that the manager began by itself. Nothing may be told
// any more.
func (m *Manager) Wait() { m.tasks.Wait() }
