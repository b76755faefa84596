package e2e

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"rota/cmd/internal/devcluster"
)

// marker is in the environment of every process of every attempt of this world,
// whatever session or parent it moved to.
func (w *world) marker() string { return "E2E_WORLD=" + w.dir }

// processes are those whose environment holds all the given variables.
func processes(variables ...string) []int {
	return scan("environ", func(environment []byte) bool {
		for _, v := range variables {
			if !bytes.Contains(environment, []byte("\x00"+v+"\x00")) {
				return false
			}
		}
		return true
	})
}

// supervisors are the processes that take care of an agent's attempts.
func supervisors(agent *devcluster.Process) []int {
	dir := "--dir=" + filepath.Join(agent.Dir, "data", "runtime")
	return scan("cmdline", func(args []byte) bool {
		return bytes.Contains(args, []byte("\x00supervise\x00")) && bytes.Contains(args, []byte("\x00"+dir+"\x00"))
	})
}

// scan returns the live processes of which a file in /proc satisfies a check.
func scan(file string, match func([]byte) bool) (pids []int) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		raw, err := os.ReadFile(filepath.Join("/proc", e.Name(), file))
		if err == nil && match(append([]byte{0}, raw...)) && alive(pid) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// alive reports whether a process exists and is no zombie.
func alive(pid int) bool {
	s := processState(pid)
	return s != "" && s != "Z" && s != "X"
}

// processState is the letter of ps, empty if there is no such process.
func processState(pid int) string {
	raw, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return ""
	}
	_, rest, _ := strings.Cut(string(raw), ") ")
	return rest[:min(1, len(rest))]
}
