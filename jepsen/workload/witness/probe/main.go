// Command probe is what actions run under test: it tells the witness that it
// has begun, works for a while, says that its work is complete, and ends. It
// does nothing without the witness knowing.
package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"rota/jepsen/history"
	"rota/jepsen/workload/witness/speak"
)

// exitUnseen is the exit code of a probe that did not find the witness.
const exitUnseen = 77

func main() {
	work := flag.Duration("for", 0, "how long to work")
	parallel := flag.Duration("parallel", 0, "how much longer with one core or GPU; with two it is half of that")
	spin := flag.Bool("spin", false, "keep all cores busy instead of sleeping")
	child := flag.Duration("child", 0, "leave a child behind that stays for so long")
	stay := flag.Duration("stay", 0, "be that child")
	flag.Parse()
	if *stay > 0 {
		time.Sleep(*stay)
		return
	}
	*work += *parallel / time.Duration(width())
	if err := run(*work, *spin, *child); err != nil {
		fmt.Fprintln(os.Stderr, "probe:", err)
		os.Exit(exitUnseen)
	}
}

func run(work time.Duration, spin bool, child time.Duration) error {
	witness, err := speak.Connect()
	if err != nil {
		return err
	}
	if err := speak.Introduce(witness); err != nil {
		return err
	}
	if err := mark(witness); err != nil {
		return err
	}
	if child > 0 {
		if err := leave(witness, child); err != nil {
			return err
		}
	}
	watched := make(chan error, 1)
	stop := make(chan struct{})
	go func() { watched <- watch(witness, stop) }()
	if spin {
		keepBusy(work)
	} else {
		time.Sleep(work)
	}
	close(stop)
	if err := <-watched; err != nil {
		return err
	}
	return speak.Say(witness, "complete\n")
}

// mark leaves the token of this process in the directory of its trajectory, and tells the witness
// whose tokens were there before.
func mark(witness int) error {
	dir := os.Getenv("ROTA_TRAJECTORY_DIR")
	if dir == "" {
		return nil
	}
	path := filepath.Join(dir, "marks")
	marks, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	if _, err := f.WriteString(os.Getenv("ROTA_FENCING_TOKEN") + "\n"); err != nil {
		return errors.Join(err, f.Close())
	}
	if err := f.Close(); err != nil {
		return err
	}
	found := cmp.Or(strings.Join(strings.Fields(string(marks)), ","), speak.Nothing)
	return speak.Say(witness, fmt.Sprintf("marked %s %s\n", os.Getenv("ROTA_TRAJECTORY_ID"), found))
}

const (
	// lookEvery is how often a probe looks on which CPUs it runs, tellEvery how often it
	// says so though nothing has changed.
	lookEvery = 5 * time.Millisecond
	tellEvery = 50 * time.Millisecond
	// blinkMax is how far apart two looks are at most between which nothing can have changed
	// twice: another action would have begun, ended and been reported meanwhile.
	blinkMax = 15 * time.Millisecond
)

// watch tells the witness on which CPUs this process runs, where they may change: its action
// can use different numbers of them.
func watch(witness int, stop <-chan struct{}) error {
	var asked history.Asked
	if err := json.Unmarshal([]byte(os.Getenv("WITNESS_ASKED")), &asked); err != nil {
		return fmt.Errorf("read WITNESS_ASKED: %w", err)
	}
	began, err := speak.Affinity()
	if err != nil || began == speak.Nothing || len(asked.Cores) < 2 {
		return err
	}
	from := monotonic()
	until, told := from, from
	tell := func(cpus string) error {
		told = until
		return speak.Say(witness, fmt.Sprintf("seen %s %d %d\n", cpus, from, until))
	}
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for cpus := began; ; {
		select {
		case <-stop:
			return tell(cpus)
		case <-tick.C:
		}
		before := monotonic()
		now, err := speak.Affinity()
		if err != nil {
			return err
		}
		if after := monotonic(); now != cpus || after-until > int64(blinkMax) {
			if err := tell(cpus); err != nil {
				return err
			}
			cpus, from, until = now, after, after
		} else {
			until = before
		}
		if until-told > int64(tellEvery) {
			if err := tell(cpus); err != nil {
				return err
			}
		}
	}
}

// monotonic returns what the machine's monotonic clock shows, in nanoseconds.
func monotonic() int64 {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		panic(err) // every Linux has that clock
	}
	return now.Nano()
}

// width is how many can share the work: GPUs if there are some, else cores.
func width() int {
	if gpus := os.Getenv("ROTA_GPUS"); gpus != "" {
		return strings.Count(gpus, ",") + 1
	}
	cores, err := strconv.Atoi(os.Getenv("ROTA_CORES"))
	if err != nil {
		return 1
	}
	return max(1, cores)
}

// keepBusy keeps as many cores busy as it was given.
func keepBusy(work time.Duration) {
	var all sync.WaitGroup
	for range width() {
		all.Go(func() {
			for begin := time.Now(); time.Since(begin) < work; {
				continue
			}
		})
	}
	all.Wait()
}

// leave starts a child that holds the connection, and does not wait for it.
func leave(witness int, stay time.Duration) error {
	fd, err := unix.Dup(witness)
	if err != nil {
		return err
	}
	connection := os.NewFile(uintptr(fd), "witness")
	defer connection.Close()
	child := exec.Command("/proc/self/exe", "-stay", stay.String())
	child.ExtraFiles = []*os.File{connection}
	if err := child.Start(); err != nil {
		return fmt.Errorf("start a child: %w", err)
	}
	return nil
}
