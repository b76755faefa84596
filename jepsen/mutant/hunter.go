package mutant

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Hunter hunts mutants in a checkout of the sources.
type Hunter struct {
	// Root of the repository, and a folder for what is built.
	Root, Dir string
	// Jepsen is rota-jepsen as it runs real processes.
	Jepsen string
}

// Catch is what became of a hunt.
type Catch struct {
	Name   string `json:"name"`
	Bug    string `json:"bug"`
	Engine string `json:"engine"`
	Hunt   string `json:"hunt"`
	Caught bool   `json:"caught"`
	// By is the checker that noticed, and Evidence the first line of what it said.
	By       string `json:"by,omitempty"`
	Evidence string `json:"evidence,omitempty"`
	// Seconds is how long it took, builds excepted; Tries the number of runs.
	Seconds float64 `json:"seconds"`
	Tries   int     `json:"tries"`
	// Other is what a checker said that was not to notice the bug.
	Other string `json:"other,omitempty"`
	// Error is why the hunt could not be finished.
	Error string `json:"error,omitempty"`
}

// Finding is the last line that rota-jepsen prints with "-o json", as far as a
// hunt needs it.
type Finding struct {
	Violations int    `json:"violations"`
	Checker    string `json:"checker"`
	Evidence   string `json:"evidence"`
	// Alarms are what all checkers of a run said that noticed something.
	Alarms map[string]string `json:"alarms"`
}

// A hunt by the simulation has one try of so many seeds: what is caught does not depend on
// how fast the machine is.
const seeds = 100

// within is the longest time for the tries of a hunt. For a simulation it only ends one
// that hangs.
func (h *Hunt) within() time.Duration {
	switch {
	case h.Within != 0:
		return h.Within
	case h.Engine == Simulation:
		return time.Hour
	}
	return 3 * time.Minute
}

// errVoid: a run that proves nothing, because a fault did not happen, say.
var errVoid = errors.New("the run was void")

// Hunt builds a mutant and runs its engine until a checker notices, or the time or the
// seeds of the simulation are over. Each try with real processes has another seed.
func (h *Hunter) Hunt(ctx context.Context, m *Mutant) Catch {
	c := Catch{Name: m.Name, Bug: m.Bug, Engine: m.Hunt.Engine, Hunt: strings.Join(m.Hunt.Args, " ")}
	binary, err := h.build(ctx, m)
	if err != nil {
		c.Error = err.Error()
		return c
	}
	defer os.Remove(binary)
	begin := time.Now()
	ctx, cancel := context.WithTimeout(ctx, m.Hunt.within())
	defer cancel()
	c.repeat(ctx, &m.Hunt, func(number int) (*Finding, error) { return h.try(ctx, &m.Hunt, binary, number) })
	c.Seconds = time.Since(begin).Seconds()
	return c
}

// repeat tries until a try ends the hunt. One of processes that was void does not count: the next
// one has another seed.
func (c *Catch) repeat(ctx context.Context, hunt *Hunt, try func(number int) (*Finding, error)) {
	counted := 0
	for again := true; again && ctx.Err() == nil; {
		c.Tries++
		f, err := try(c.Tries)
		if hunt.Engine != Processes || !errors.Is(err, errVoid) {
			counted++
		}
		again = c.note(f, err, hunt.By) && (hunt.Tries == 0 || counted < hunt.Tries)
	}
}

// note records a try and says whether another one makes sense. One that the time of the hunt
// cuts off says nothing, and if it is the only one, the hunt says nothing either.
func (c *Catch) note(f *Finding, err error, by []string) (again bool) {
	if errors.Is(err, context.DeadlineExceeded) {
		if c.Tries == 1 {
			c.Error = "no run came to its end in time"
		}
		return true
	}
	c.Error = ""
	switch {
	case errors.Is(err, errVoid):
		c.Error = err.Error()
	case err != nil:
		c.Error = err.Error()
		return false // it would fail again
	case f.Violations > 0:
		return !c.judge(f, by)
	}
	return true
}

// judge takes what a try found for a catch if a checker says so that is to notice the bug.
func (c *Catch) judge(f *Finding, by []string) (caught bool) {
	if len(by) == 0 {
		c.Caught, c.By, c.Evidence = true, f.Checker, f.Evidence
		return true
	}
	for _, checker := range by {
		if evidence, ok := f.Alarms[checker]; ok {
			c.Caught, c.By, c.Evidence = true, checker, evidence
			return true
		}
	}
	c.Other = f.Checker + ": " + f.Evidence
	return false
}

// build compiles what the engine runs, with the bug in it.
func (h *Hunter) build(ctx context.Context, m *Mutant) (string, error) {
	dir := filepath.Join(h.Dir, m.Name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	overlay, err := m.Overlay(h.Root, dir)
	if err != nil {
		return "", err
	}
	binary := filepath.Join(dir, "mutant")
	args := append(goCommand(&m.Hunt), "-overlay", overlay, "-o", binary, target(&m.Hunt))
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir, cmd.Env = h.Root, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build mutant %s: %w: %s", m.Name, err, bytes.TrimSpace(out))
	}
	return binary, nil
}

func goCommand(hunt *Hunt) []string {
	switch hunt.Engine {
	case Processes:
		return []string{"build", "-trimpath", "-tags", "faults"}
	case Tests:
		return []string{"test", "-trimpath", "-c"}
	}
	return []string{"build", "-trimpath"}
}

func target(hunt *Hunt) string {
	switch hunt.Engine {
	case Processes:
		return "./cmd/rota"
	case Tests:
		return "./" + hunt.Args[0]
	}
	return "./cmd/rota-jepsen"
}

// try is one run of the engine.
func (h *Hunter) try(ctx context.Context, hunt *Hunt, binary string, number int) (*Finding, error) {
	program, args := h.command(hunt, binary, number)
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Stdout, cmd.Stderr, cmd.Dir = &out, &errs, h.Root
	if hunt.Engine == Tests {
		cmd.Dir = filepath.Join(h.Root, hunt.Args[0]) // as go test does: tests read their files
	}
	// In time the run ends its own processes.
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 30 * time.Second
	err := cmd.Run()
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil && !errors.As(err, &exit):
		return nil, err
	case hunt.Engine == Tests:
		return verdictOfTest(hunt, out.String(), err)
	}
	lines := bytes.Split(bytes.TrimSpace(out.Bytes()), []byte("\n"))
	var f Finding
	if jsonErr := json.Unmarshal(lines[len(lines)-1], &f); jsonErr != nil {
		return nil, fmt.Errorf("%s %s: %v: %s", filepath.Base(program), strings.Join(args, " "), err, lastLines(errs.String()))
	}
	if f.Violations == 0 && err != nil {
		return nil, fmt.Errorf("%w: %v: %s", errVoid, err, lastLines(errs.String()))
	}
	return &f, nil
}

// command is what a try runs.
func (h *Hunter) command(hunt *Hunt, binary string, number int) (program string, args []string) {
	switch hunt.Engine {
	case Tests:
		return binary, []string{"-test.v", "-test.run", "^" + hunt.Args[1] + "$"}
	case Processes:
		return h.Jepsen, append([]string{"run", "-o", "json", "--seed", fmt.Sprint(number), "--binary", binary, "--other-binary", binary,
			"--store", filepath.Join(h.Dir, "store")}, hunt.Args...)
	}
	return binary, append([]string{"dst", "-o", "json", "--seeds", fmt.Sprint(seeds),
		"--until-violation", "--shrink", "0s"}, hunt.Args...)
}

// verdictOfTest reads what a test binary printed. One that ran no test proves
// nothing.
func verdictOfTest(hunt *Hunt, out string, err error) (*Finding, error) {
	if !strings.Contains(out, "=== RUN   "+hunt.Args[1]) {
		return nil, fmt.Errorf("%s has no %s: %s", hunt.Args[0], hunt.Args[1], lastLines(out))
	}
	if err == nil {
		return &Finding{}, nil
	}
	evidence := lastLines(out)
	for line := range strings.Lines(out) {
		if strings.Contains(line, "_test.go:") {
			evidence = strings.TrimSpace(line)
			break
		}
	}
	return &Finding{Violations: 1, Checker: hunt.Args[1], Evidence: evidence}, nil
}

// lastLines returns the last lines of what a program wrote or, if it has panicked, why and where.
func lastLines(s string) string {
	const few, trace = 3, 20
	lines := strings.Split(strings.TrimSpace(s), "\n")
	panicked := slices.IndexFunc(lines, func(line string) bool {
		return strings.HasPrefix(line, "panic: ") || strings.HasPrefix(line, "fatal error: ")
	})
	if panicked >= 0 {
		return strings.Join(lines[panicked:min(len(lines), panicked+trace)], " | ")
	}
	return strings.Join(lines[max(0, len(lines)-few):], " | ")
}
