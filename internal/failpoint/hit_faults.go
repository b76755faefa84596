//go:build faults

package failpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

var folder = os.Getenv(Env)

// Hit does what the file of that name says, if there is one.
func Hit(name string) {
	if folder == "" {
		return
	}
	path := filepath.Join(folder, name)
	err := os.Rename(path, path+actedSuffix) // whoever succeeds acts
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	var action []byte
	if err == nil {
		action, err = os.ReadFile(path + actedSuffix)
	}
	var a act
	if err == nil {
		a, err = parse(string(action))
	}
	if err != nil {
		panic(fmt.Sprintf("failpoint %s: %v", name, err))
	}
	fmt.Fprintf(os.Stderr, "failpoint %s: %s\n", name, action)
	a.do()
}

func (a act) do() {
	switch a.verb {
	case "kill":
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {} // nothing happens between the signal and the end
	case "exit":
		os.Exit(1)
	case "stop":
		_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
	case "sleep":
		time.Sleep(a.pause)
	}
}
