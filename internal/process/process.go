package process

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// ErrRunning: a process that runs already was to be started.
var ErrRunning = errors.New("process is running already")

// Process is one server or agent, which may be started more than once. Changes
// of its fields count from the next start.
type Process struct {
	Name string
	// Addr is the address of its API, host:port.
	Addr string
	// Dir holds its log. It is created.
	Dir string

	Binary string
	Args   []string
	// Env is added to the environment of this process.
	Env []string
	// Netns is the file of the network namespace that it starts in; ours if empty.
	Netns string

	mu   sync.Mutex
	cmd  *exec.Cmd
	done chan struct{}
	err  error // of Wait, once done is closed
}

// New describes a process.
func New(name, addr, dir, binary string, args ...string) *Process {
	return &Process{Name: name, Addr: addr, Dir: dir, Binary: binary, Args: args}
}

// LogPath is the file with what the process wrote, over all its runs.
func (p *Process) LogPath() string { return filepath.Join(p.Dir, "log") }

// Start starts the process, again if it has ended.
func (p *Process) Start() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.running() {
		return fmt.Errorf("%s: %w", p.Name, ErrRunning)
	}
	if err := os.MkdirAll(p.Dir, 0o755); err != nil {
		return err
	}
	log, err := os.OpenFile(p.LogPath(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(p.Binary, p.Args...)
	cmd.Env = append(os.Environ(), p.Env...)
	cmd.Stdout, cmd.Stderr = log, log
	// A group of its own: Ctrl-C in a terminal reaches the parent only, which
	// then ends its children in order.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	if err := Fork(cmd, p.Netns); err != nil {
		return fmt.Errorf("start %s: %w", p.Name, err)
	}
	done := make(chan struct{})
	p.cmd, p.done = cmd, done
	go func() {
		err := cmd.Wait()
		p.mu.Lock()
		p.err = err
		p.mu.Unlock()
		close(done)
	}()
	return nil
}

// running is called with the lock held.
func (p *Process) running() bool {
	if p.cmd == nil {
		return false
	}
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// Done is closed when the process, as last started, has ended.
func (p *Process) Done() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.done
}

// Pid is the process ID, 0 if it does not run.
func (p *Process) Pid() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.running() {
		return 0
	}
	return p.cmd.Process.Pid
}

// Signal sends a signal to the process, if it runs.
func (p *Process) Signal(sig syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.running() {
		_ = p.cmd.Process.Signal(sig) // an error means that it has just ended
	}
}

// Kill ends the process with SIGKILL and returns once it is gone.
func (p *Process) Kill() {
	p.Signal(syscall.SIGKILL)
	if done := p.Done(); done != nil {
		<-done
	}
}

// Stop ends the process with SIGTERM, and with SIGKILL after the grace.
func (p *Process) Stop(grace time.Duration) {
	p.Signal(syscall.SIGTERM)
	done := p.Done()
	if done == nil {
		return
	}
	select {
	case <-done:
	case <-time.After(grace):
		p.Kill()
	}
}

// Err is how the process, as last started, ended; nil if with status 0. It is
// for after Done.
func (p *Process) Err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

// Ended describes a process that should be running but is not.
func (p *Process) Ended() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return fmt.Errorf("%s ended: %v; the end of its log, %s:\n%s", p.Name, p.err, p.LogPath(), logTail(p.LogPath()))
}

// logTail is the last lines of a log, for error messages.
func logTail(path string) string {
	raw, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimRight(string(raw), "\n"), "\n")
	return "  " + strings.Join(lines[max(0, len(lines)-8):], "\n  ")
}
