package cluster

import (
	"bytes"
	"fmt"
	"os/exec"
	"strings"

	"rota/internal/process"
)

// tool runs a program, which must succeed, in a network namespace.
func tool(netns, stdin, name string, args ...string) error {
	_, err := output(netns, stdin, name, args...)
	return err
}

// output is what the program wrote.
func output(netns, stdin, name string, args ...string) ([]byte, error) {
	var out, complaint bytes.Buffer
	cmd := exec.Command(name, args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &complaint
	err := process.Fork(cmd, netns)
	if err == nil {
		err = cmd.Wait()
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %s", strings.Join(append([]string{name}, args...), " "), err, bytes.TrimSpace(complaint.Bytes()))
	}
	return out.Bytes(), nil
}
