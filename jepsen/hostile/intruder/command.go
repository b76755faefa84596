package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"rota/jepsen/hostile"
)

// exitGot is the exit code of a command that has got what it must not get.
const exitGot = 66

// modes are what the command of an action does to its node: hostile.Modes. Each takes a
// few seconds at most, and returns what it got and must not get. An error says that it
// could not even try.
var modes = map[string]func() (got string, err error){
	hostile.Forks: forks, hostile.Memory: memory, hostile.Kill: killAll, hostile.Scan: scan,
	hostile.Descriptors: descriptors, hostile.Disk: fillDisk, hostile.Linger: linger,
}

// exitTried is the exit code of a command that has got nothing. It is a failure: what
// succeeds has to be seen by the witness of the run.
const exitTried = 1

// exitCannot is the exit code of a command that could not try.
const exitCannot = 2

// command is the hostile command of an action.
func command(mode string) int {
	run := modes[mode]
	if run == nil {
		fmt.Fprintf(os.Stderr, "there is no mode %q\n", mode)
		return exitCannot
	}
	got, err := run()
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, err)
		return exitCannot
	case got != "":
		fmt.Println(got)
		return exitGot
	}
	return exitTried
}

// forks is a fork bomb, which ends at the limit of processes or of memory, or in time.
func forks() (got string, err error) {
	return "", syscall.Exec("/bin/sh", []string{"sh", "-c", "bomb() { bomb | bomb & }; bomb; sleep 2; exit 1"}, os.Environ())
}

// memory takes more than it has.
func memory() (got string, err error) {
	var all [][]byte
	for range 2 * commandMemory >> 20 {
		all = append(all, bytes.Repeat([]byte{1}, 1<<20))
	}
	return fmt.Sprintf("it has %d MiB of memory", len(all)), nil
}

// killAll kills everything that it may.
func killAll() (got string, err error) {
	for end := time.Now().Add(time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		_ = syscall.Kill(-1, syscall.SIGKILL) // there may be nothing else
	}
	return "", nil
}

// ownToken is in the environment of each process of this attempt.
var ownToken = "ROTA_FENCING_TOKEN=" + os.Getenv("ROTA_FENCING_TOKEN")

// scan looks for processes and files of other attempts.
func scan() (got string, err error) {
	for end := time.Now().Add(1500 * time.Millisecond); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		files, _ := filepath.Glob("/proc/[0-9]*/environ")
		for _, file := range files {
			raw, err := os.ReadFile(file)
			if err == nil && bytes.Contains(raw, []byte("ROTA_FENCING_TOKEN=")) && !bytes.Contains(raw, []byte(ownToken)) {
				return "it read the environment of another attempt: " + file, nil
			}
		}
		for _, dir := range []string{"/tmp", "/var/tmp"} {
			entries, _ := os.ReadDir(dir)
			for _, e := range entries {
				if info, err := e.Info(); err == nil && strings.HasPrefix(e.Name(), witnessed) && info.Sys().(*syscall.Stat_t).Uid != uint32(os.Getuid()) {
					return "it sees a file of another user: " + filepath.Join(dir, e.Name()), nil
				}
			}
		}
	}
	return "", nil
}

// witnessed begins the names of files that this command makes in /tmp.
const witnessed = "hostile-"

// descriptors opens the output of others where it sees it, and holds as many files as it
// may until its end.
func descriptors() (got string, err error) {
	for {
		if _, err := os.Open(os.DevNull); err != nil {
			break // it has all that it may have
		}
	}
	for end := time.Now().Add(1500 * time.Millisecond); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		for pid := 1; pid < 4096; pid++ {
			link := "/proc/" + strconv.Itoa(pid) + "/fd/1"
			var path [512]byte
			n, err := unix.Readlink(link, path[:])
			if err != nil || !bytes.Contains(path[:n], []byte("/output/")) {
				continue
			}
			own, err := os.Readlink("/proc/self/fd/1")
			if err == nil && own != string(path[:n]) {
				return "it sees the output of another attempt: " + string(path[:n]), nil
			}
		}
	}
	return "", nil
}

// diskBytes is how much of the disk it takes.
const diskBytes = 64 << 20

// fillDisk fills its directory and its /tmp.
func fillDisk() (got string, err error) {
	block := bytes.Repeat([]byte("x"), 1<<20)
	for _, dir := range []string{".", "/tmp"} {
		f, err := os.Create(filepath.Join(dir, witnessed+"fill"))
		if err != nil {
			continue
		}
		for range diskBytes / 2 / len(block) {
			if _, err := f.Write(block); err != nil {
				break // the disk, or what this attempt may have of it, is full
			}
		}
		f.Close()
	}
	time.Sleep(time.Second)
	return "", nil
}

// linger leaves processes behind that want to outlive the attempt.
func linger() (got string, err error) {
	for range 4 {
		_, err := syscall.ForkExec("/bin/sh", []string{"sh", "-c", "trap '' TERM HUP INT; sleep 120"}, &syscall.ProcAttr{
			Env: os.Environ(), Sys: &syscall.SysProcAttr{Setsid: true},
		})
		if err != nil && !errors.Is(err, syscall.EAGAIN) {
			return "", err
		}
	}
	return "", nil
}
