package e2e

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// script is every action of the load. It holds a lock that only the end of all
// its processes gives back, so two executions of one submission that are alive
// at the same time give themselves away. With $HOLD set it stays until the gate
// is opened; the process that waits there is a grandchild of the supervisor.
const script = `exec 9>>"$E2E_WORLD/locks/$SUBMISSION"
flock -n 9 || echo "duplicate $SUBMISSION $ROTA_FENCING_TOKEN" >>"$E2E_WORLD/witness"
echo "start $SUBMISSION $ROTA_FENCING_TOKEN" >>"$E2E_WORLD/witness"
if [ -n "$HOLD" ]; then flock -s "$E2E_WORLD/gate" true; fi
echo "end $SUBMISSION $ROTA_FENCING_TOKEN" >>"$E2E_WORLD/witness"`

// prepare makes what the script needs and shuts the gate.
func (w *world) prepare() (open func()) {
	w.Helper()
	if err := os.Mkdir(filepath.Join(w.dir, "locks"), 0o777); err != nil {
		w.Fatal(err)
	}
	gate, err := os.Create(filepath.Join(w.dir, "gate"))
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { gate.Close() })
	if err := syscall.Flock(int(gate.Fd()), syscall.LOCK_EX); err != nil {
		w.Fatal(err)
	}
	return func() { gate.Close() }
}

// token is what identifies one attempt.
type token struct {
	action  uint64
	attempt uint32
	text    string
}

// deed is one line of the witness file.
type deed struct {
	what       string
	submission int
	token      token
}

// deeds reads what executions have said, in the order in which they said it.
func (w *world) deeds() (all []deed) {
	w.Helper()
	raw, err := os.ReadFile(filepath.Join(w.dir, "witness"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		w.Fatal(err)
	}
	for line := range strings.Lines(string(raw)) {
		f := strings.Fields(line)
		if len(f) != 3 {
			w.Fatalf("malformed line of the witness: %q", line)
		}
		submission, err1 := strconv.Atoi(f[1])
		t, err2 := parseToken(f[2])
		if err := errors.Join(err1, err2); err != nil {
			w.Fatalf("malformed line of the witness: %q: %v", line, err)
		}
		all = append(all, deed{f[0], submission, t})
	}
	return all
}

// parseToken reads ROTA_FENCING_TOKEN: action.attempt.incarnation.
func parseToken(text string) (token, error) {
	action, rest, _ := strings.Cut(text, ".")
	attempt, _, _ := strings.Cut(rest, ".")
	a, err1 := strconv.ParseUint(action, 10, 64)
	n, err2 := strconv.ParseUint(attempt, 10, 32)
	return token{a, uint32(n), text}, errors.Join(err1, err2)
}

// count returns how many lines of a kind there are.
func (w *world) count(what string) (n int) {
	for _, d := range w.deeds() {
		if d.what == what {
			n++
		}
	}
	return n
}

// execute runs the script as an agent would.
func (w *world) execute(hold, rotaToken string) *exec.Cmd {
	w.Helper()
	before := w.count("start")
	cmd := exec.Command("sh", "-c", script)
	cmd.Env = append(os.Environ(), w.marker(), "SUBMISSION=1", hold, "ROTA_FENCING_TOKEN="+rotaToken)
	if err := cmd.Start(); err != nil {
		w.Fatal(err)
	}
	w.until("the script has started", func() bool { return w.count("start") > before })
	return cmd
}
