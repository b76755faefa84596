package witness

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"rota/jepsen/history"
)

// eventsMax is how many connections are looked at together. The kernel reports
// them in the order in which they became ready, so that nothing overtakes an end
// that is left for the next round.
const eventsMax = 1024

// lineBytesMax is more than any probe sends without a line end.
const lineBytesMax = 4096

// lookEvery is how long one look lasts at most, in milliseconds, so that it is
// known of each execution until when it was alive, whatever the others do.
const lookEvery = 10

// run looks at connections until the witness is closed.
func (w *Witness) run() {
	defer close(w.done)
	defer w.release()
	events := make([]unix.EpollEvent, eventsMax)
	for {
		began := w.now()
		n, err := unix.EpollWait(w.poll, events, lookEvery)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			w.blind(fmt.Errorf("wait for probes: %w", err))
			return
		}
		if w.round(events[:n]) {
			return
		}
		if n < len(events) {
			// There were no more, and ends among them are recorded.
			w.looked = began
		}
	}
}

// round deals with what was reported together: first with ends, then with what
// the living say, last with new connections.
func (w *Witness) round(events []unix.EpollEvent) (closed bool) {
	ended, living := w.sort(events)
	for _, p := range ended {
		w.read(p) // its last words
		w.end(p)
	}
	for _, p := range living {
		w.read(p)
	}
	for _, e := range events {
		switch int(e.Fd) {
		case w.listen:
			w.accept()
		case int(w.woken.Fd()):
			closed = true
		}
	}
	return closed
}

// sort finds the connections that have ended and those that have not. Of the
// ended, those whose start is recorded come first: who died before its hello was
// read may have begun after them.
func (w *Witness) sort(events []unix.EpollEvent) (ended, living []*probe) {
	const gone = unix.EPOLLHUP | unix.EPOLLRDHUP | unix.EPOLLERR
	var unheard []*probe
	for _, e := range events {
		switch p := w.probes[int(e.Fd)]; {
		case p == nil:
		case e.Events&gone == 0:
			living = append(living, p)
		case p.at < 0:
			unheard = append(unheard, p)
		default:
			ended = append(ended, p)
		}
	}
	return append(ended, unheard...), living
}

// accept takes all connections that wait.
func (w *Witness) accept() {
	for {
		fd, _, err := unix.Accept4(w.listen, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
		switch {
		case errors.Is(err, unix.EAGAIN):
			return
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.ECONNABORTED):
			continue
		case err != nil:
			w.blind(fmt.Errorf("accept a probe: %w", err))
			return
		}
		if err := w.follow(fd); err != nil {
			w.blind(fmt.Errorf("follow a probe: %w", err))
			unix.Close(fd)
			continue
		}
		w.probes[fd] = &probe{fd: fd, at: -1}
	}
}

// read takes in what a probe has said.
func (w *Witness) read(p *probe) {
	var buffer [lineBytesMax]byte
	for {
		n, err := unix.Read(p.fd, buffer[:])
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if n <= 0 || err != nil {
			return // nothing more for now; an end is reported as such
		}
		p.text = append(p.text, buffer[:n]...)
		for {
			line, rest, whole := bytes.Cut(p.text, []byte{'\n'})
			if !whole {
				break
			}
			p.text = rest
			w.said(p, string(line))
		}
	}
}

// said deals with one line of a probe.
func (w *Witness) said(p *probe, line string) {
	switch {
	case p.at < 0:
		w.begin(p, line)
	case p.engine:
		w.blind(fmt.Errorf("an engine said %q", line))
	case line == completeLine:
		w.note(p, func(e *history.Execution) { e.Complete = true })
	case line == unservedLine:
		w.note(p, func(e *history.Execution) { e.Unserved = true })
	case strings.HasPrefix(line, answeredWord):
		answer, err := parseAnswer(line)
		if err != nil {
			w.blind(err)
			return
		}
		w.note(p, func(e *history.Execution) { e.Answer = &answer })
	case strings.HasPrefix(line, markedWord):
		trajectory, found, err := parseMarked(line)
		if err != nil {
			w.blind(err)
			return
		}
		at := w.now()
		w.note(p, func(e *history.Execution) { e.Trajectory, e.Found, e.Marked = trajectory, found, at })
	case strings.HasPrefix(line, seenWord):
		w.sees(p, line)
	default:
		w.blind(fmt.Errorf("a probe said %q", line))
	}
}

// note changes what is recorded of a probe's execution.
func (w *Witness) note(p *probe, change func(*history.Execution)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change(&w.executions[p.at])
}

// sees records which CPUs a probe saw itself run on. It goes by the monotonic clock of the
// machine, which this process has, too.
func (w *Witness) sees(p *probe, line string) {
	s, err := parseSeen(line)
	var mono unix.Timespec
	if err = errors.Join(err, unix.ClockGettime(unix.CLOCK_MONOTONIC, &mono)); err != nil {
		w.blind(err)
		return
	}
	ahead := w.now() - mono.Nano()
	s.From, s.Until = s.From+ahead, s.Until+ahead
	w.mu.Lock()
	defer w.mu.Unlock()
	e := &w.executions[p.at]
	const same = int64(time.Millisecond) // how far apart two readings of one time may be
	if last := len(e.Seen) - 1; last >= 0 && slices.Equal(e.Seen[last].Cores, s.Cores) && s.From-e.Seen[last].From < same {
		e.Seen[last].Until = s.Until
		return
	}
	e.Seen = append(e.Seen, s)
}

// begin records a start and then lets the probe work. A probe that takes the
// answer is alive after its start. One that is gone has reported that, too.
func (w *Witness) begin(p *probe, hello string) {
	if strings.HasPrefix(hello, engineWord+" ") {
		w.beginServing(p, hello)
		return
	}
	e, err := parseHello(hello)
	if err != nil {
		w.blind(err)
		return
	}
	e.Start = w.now()
	w.mu.Lock()
	defer w.mu.Unlock()
	p.at = len(w.executions)
	w.executions = append(w.executions, e)
	if _, err := unix.Write(p.fd, ack); err == nil {
		w.executions[p.at].Alive = e.Start
	}
}

// beginServing is begin for an engine that is there, or holds memory from now on.
func (w *Witness) beginServing(p *probe, hello string) {
	s, err := parseServing(hello)
	if err != nil {
		w.blind(err)
		return
	}
	s.Start = w.now()
	w.mu.Lock()
	defer w.mu.Unlock()
	p.at, p.engine = len(w.servings), true
	w.servings = append(w.servings, s)
	if _, err := unix.Write(p.fd, ack); err == nil {
		w.servings[p.at].Alive = s.Start
	}
}

// end records that all processes of an execution are gone, and when they were not
// yet: all looks since its start have seen it alive, but for the one that is being
// dealt with.
func (w *Witness) end(p *probe) {
	delete(w.probes, p.fd)
	// A process that this one starts right now has a copy of the descriptor until it executes
	// its program. The kernel would go on to report that end, in the name of whatever
	// connection has the descriptor's number by then.
	if err := unix.EpollCtl(w.poll, unix.EPOLL_CTL_DEL, p.fd, nil); err != nil {
		w.blind(fmt.Errorf("stop to follow a probe: %w", err))
	}
	unix.Close(p.fd)
	if p.at < 0 {
		return // it died before it could say who it is, and never worked
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	var end, alive *int64
	if p.engine {
		end, alive = &w.servings[p.at].End, &w.servings[p.at].Alive
	} else {
		end, alive = &w.executions[p.at].End, &w.executions[p.at].Alive
	}
	*end = w.now()
	if *alive > 0 {
		*alive = max(*alive, w.looked)
	}
}
