package sim

// Clock is the monotonic clock of one machine. It may run fast or slow.
type Clock struct {
	loop *Loop
	ppm  int64
}

// NewClock returns a clock that gains ppm millionths of the time.
func NewClock(l *Loop, ppm int64) *Clock { return &Clock{l, ppm} }

// epoch is what every clock shows at the beginning: 0 means never to many.
const epoch = 1_000_000_000_000

// Now returns what the clock shows, in nanoseconds.
func (c *Clock) Now() int64 {
	t := c.loop.now
	return epoch + t + t/1000*c.ppm/1000
}

// span returns how much virtual time passes while the clock advances by d.
func (c *Clock) span(d int64) int64 { return d - d/1000*c.ppm/(1000+c.ppm/1000) }

// Process is something on a machine that can be killed, paused and started
// again. What was scheduled for it dies with it; what falls into a pause happens
// at its end, in order.
type Process struct {
	loop    *Loop
	clock   *Clock
	life    int // counts starts, so that events of an earlier life are known
	alive   bool
	paused  bool
	backlog []func()
}

// NewProcess returns a process that has not been started.
func NewProcess(l *Loop, c *Clock) *Process { return &Process{loop: l, clock: c} }

// Alive says whether the process exists, paused or not.
func (p *Process) Alive() bool { return p.alive }

// Paused says whether the process stands still.
func (p *Process) Paused() bool { return p.paused }

// Runs says whether the process exists and is not paused.
func (p *Process) Runs() bool { return p.alive && !p.paused }

// Start begins a new life.
func (p *Process) Start() {
	p.life++
	p.alive, p.paused, p.backlog = true, false, nil
}

// Kill ends the process at once.
func (p *Process) Kill() {
	p.life++
	p.alive, p.paused, p.backlog = false, false, nil
}

// Pause makes the process stand still until Resume.
func (p *Process) Pause() { p.paused = p.alive }

// Resume lets a paused process do what it missed.
func (p *Process) Resume() {
	if !p.paused {
		return
	}
	p.paused = false
	missed := p.backlog
	p.backlog = nil
	for _, fn := range missed {
		p.At(p.loop.now, fn)
	}
}

// At has the process do fn at a virtual time, if it still lives this life then.
func (p *Process) At(at int64, fn func()) {
	life := p.life
	p.loop.At(at, func() {
		switch {
		case life != p.life, !p.alive:
		case p.paused:
			p.backlog = append(p.backlog, fn)
		default:
			fn()
		}
	})
}

// After has the process do fn when d nanoseconds have passed on its own clock.
func (p *Process) After(d int64, fn func()) { p.At(p.loop.now+p.clock.span(d), fn) }
