package agent

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"rota/agent/plan"
	"rota/agent/runtime"
)

// portVariable is where a command with {{port}} finds its port, too.
const portVariable = "ROTA_PORT"

// errNoPort means that no port could be given to an attempt.
var errNoPort = errors.New("no free port for the attempt")

// ports are those on which attempts of this node listen, on loopback. A file for each outlives
// the agent, as the attempt does. It need not outlive the machine.
type ports struct {
	dir string

	mu sync.Mutex
	of map[plan.Key]int
}

// openPorts reads what an earlier agent has left, of the attempts that there still are.
func openPorts(dir string, known func(plan.Key) bool) (*ports, error) {
	p := &ports{dir: dir, of: map[plan.Key]int{}}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("ports of attempts: %w", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("ports of attempts: %w", err)
	}
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		port, notNumber := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 16)
		key, valid := parseKey(e.Name())
		if err != nil || notNumber != nil || !valid || port == 0 || !known(key) {
			_ = os.Remove(filepath.Join(dir, e.Name())) // of an attempt that is over
			continue
		}
		p.of[key] = int(port)
	}
	return p, nil
}

// parseKey reads what Key.String wrote.
func parseKey(text string) (key plan.Key, valid bool) {
	var rest string
	n, err := fmt.Sscanf(text+" end", "%d.%d.%d %s", &key.Action, &key.Attempt, &key.Incarnation, &rest)
	return key, err == nil && n == 4 && key.String() == text
}

// choose gives an attempt a port that nothing listens on. Asked again, it says the same. It does not
// wait for a disk.
func (p *ports) choose(key plan.Key) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if port := p.of[key]; port != 0 {
		return port, nil
	}
	taken := make(map[int]bool, len(p.of))
	for _, port := range p.of {
		taken[port] = true
	}
	for range 100 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return 0, fmt.Errorf("%w: %w", errNoPort, err)
		}
		port := l.Addr().(*net.TCPAddr).Port
		_ = l.Close()
		if taken[port] {
			continue
		}
		p.of[key] = port
		return port, nil
	}
	return 0, errNoPort
}

// keep writes the port of an attempt, if it has one, for the agents that come after this one. The
// attempt is not started before.
func (p *ports) keep(key plan.Key) error {
	port := p.get(key)
	if port == 0 {
		return nil
	}
	if err := os.WriteFile(p.file(key), []byte(strconv.Itoa(port)), 0o600); err != nil {
		return fmt.Errorf("note the port of the attempt: %w", err)
	}
	return nil
}

func (p *ports) file(key plan.Key) string { return filepath.Join(p.dir, key.String()) }

// get returns the port of an attempt, 0 if it has none.
func (p *ports) get(key plan.Key) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.of[key]
}

// forget gives up the ports of attempts that are over.
func (p *ports) forget(keys []plan.Key) {
	for _, key := range keys {
		if p.get(key) == 0 {
			continue
		}
		p.mu.Lock()
		delete(p.of, key)
		p.mu.Unlock()
		_ = os.Remove(p.file(key)) // if it stays, the next agent removes it
	}
}

// listens has a command that asks for a port get one.
func (s specifier) listens(spec *runtime.Spec) error {
	asks := false
	for _, list := range [][]string{spec.Argv, spec.Env} {
		for _, text := range list {
			asks = asks || strings.Contains(text, portMark)
		}
	}
	if !asks || s.ports == nil {
		return nil
	}
	port, err := s.ports.choose(spec.Key)
	if err != nil {
		return err
	}
	text := strconv.Itoa(port)
	marks := strings.NewReplacer(portMark, text)
	spec.Argv = replaced(marks, spec.Argv)
	spec.Env = append(replaced(marks, spec.Env), portVariable+"="+text)
	return nil
}
