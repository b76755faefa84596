package hostile

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"rota/api/pki"
)

// Modes of a hostile command.
const (
	Forks       = "forks"
	Memory      = "memory"
	Kill        = "kill"
	Scan        = "scan"
	Descriptors = "descriptors"
	Disk        = "disk"
	Linger      = "linger"
)

// ModesFor are the modes that a machine with these controllers of cgroups can stand, and
// in a sentence each those that are left out.
func ModesFor(controllers []string) (modes, skipped []string) {
	needs := map[string]string{Forks: "pids", Memory: "memory"}
	for _, mode := range []string{Forks, Memory, Kill, Scan, Descriptors, Disk, Linger} {
		if need := needs[mode]; need == "" || slices.Contains(controllers, need) {
			modes = append(modes, mode)
			continue
		}
		skipped = append(skipped, fmt.Sprintf("the command %s is left out: this machine has no cgroup controller %q", mode, needs[mode]))
	}
	return modes, skipped
}

// Command is the kind under which a mode is counted.
func Command(mode string) string { return "command: " + mode }

// Kinds are all that a client and an agent try, beside the modes of commands.
func Kinds() []string {
	return []string{
		"bombs in gzip", "large JSON", "malformed", "oversized", "replayed", "control characters", "calls of other roles",
		"too little memory", "directories of the supervisor", "pools", "false reports", "reports for others", "oversized reports",
		"gossip connections",
	}
}

// Summary is what an intruder did. Tried counts attempts by kind, and Achieved says in
// a line each what was not refused, or was seen, and must not have been.
type Summary struct {
	Tried    map[string]int `json:"tried"`
	Achieved []string       `json:"achieved,omitempty"`
}

// Add adds the summary of another intruder.
func (s *Summary) Add(other Summary) {
	if s.Tried == nil {
		s.Tried = make(map[string]int)
	}
	for kind, n := range other.Tried {
		s.Tried[kind] += n
	}
	s.Achieved = append(s.Achieved, other.Achieved...)
}

// Package is what to build for an intruder: a static binary, in a folder that commands
// of actions can see.
const Package = "rota/jepsen/hostile/intruder"

// Target is what an intruder is told of the cluster.
type Target struct {
	Servers []string `json:"servers"` // addresses of their API
	Gossip  []string `json:"gossip"`  // gossip addresses of all members
	Pool    string   `json:"pool"`    // of the nodes
	// Victims are names of nodes. Label has another value on each of them.
	Victims []string `json:"victims"`
	Label   string   `json:"label"`
	// Modes of the command that runs on each of them.
	Modes []string `json:"modes"`
	// Forbidden are paths inside the folders of supervisors, at which nothing may be made.
	Forbidden []string  `json:"forbidden"`
	Files     pki.Files `json:"files"`
	// Program is the path of the intruder, as commands of actions see it.
	Program string `json:"program"`
}

// Intruder is one that runs.
type Intruder struct {
	cmd *exec.Cmd
	out strings.Builder
}

// stopMax is how long an intruder may take to clean up behind itself.
const stopMax = 20 * time.Second

// Start starts an intruder: "client" or "agent".
func Start(program, role string, t Target) (*Intruder, error) {
	text, err := json.Marshal(t)
	if err != nil {
		return nil, err
	}
	i := &Intruder{cmd: exec.Command(program, role, string(text))}
	i.cmd.Stdout, i.cmd.Stderr = &i.out, os.Stderr
	i.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := i.cmd.Start(); err != nil {
		return nil, err
	}
	// What it costs itself would be at the expense of another machine.
	return i, syscall.Setpriority(syscall.PRIO_PGRP, i.cmd.Process.Pid, 19)
}

// Stop ends an intruder and returns what it did.
func (i *Intruder) Stop() (s Summary, err error) {
	kill := time.AfterFunc(stopMax, func() { _ = i.cmd.Process.Kill() }) // it may have ended
	defer kill.Stop()
	err = i.cmd.Process.Signal(syscall.SIGTERM)
	if errWait := i.cmd.Wait(); errWait != nil {
		return s, errors.Join(err, fmt.Errorf("the intruder %s: %w", i.cmd.Args[1], errWait))
	}
	if err := json.Unmarshal([]byte(i.out.String()), &s); err != nil {
		return s, fmt.Errorf("the intruder %s ended with %q: %w", i.cmd.Args[1], i.out.String(), err)
	}
	return s, err
}
