// Command probe is what actions run under test: it tells the witness that it
// has begun, works for a while, says that its work is complete, and ends. It
// does nothing without the witness knowing.
package main

import (
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"rota/jepsen/history"
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
	witness, err := connect(os.Getenv("WITNESS"))
	if err != nil {
		return err
	}
	if err := introduce(witness); err != nil {
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
	return say(witness, "complete\n")
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
	began, err := affinity()
	if err != nil || began == nothing || len(asked.Cores) < 2 {
		return err
	}
	from := monotonic()
	until, told := from, from
	tell := func(cpus string) error {
		told = until
		return say(witness, fmt.Sprintf("seen %s %d %d\n", cpus, from, until))
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
		now, err := affinity()
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

// connect connects to the witness. The connection is never closed: its end is
// the end of the process.
func connect(path string) (fd int, err error) {
	if fd, err = unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0); err != nil {
		return 0, err
	}
	if err := unix.Connect(fd, &unix.SockaddrUnix{Name: path}); err != nil {
		return 0, fmt.Errorf("connect to the witness at %q: %w", path, err)
	}
	return fd, nil
}

// introduce says which execution this is, and returns once that is recorded.
func introduce(witness int) error {
	cpus, err := affinity()
	if err != nil {
		return err
	}
	hello := []string{
		os.Getenv("ROTA_TOKEN"), os.Getenv("ROTA_NODE"), os.Getenv("WITNESS_REQUEST"),
		cpus, cmp.Or(os.Getenv("ROTA_CORES"), "0"), cmp.Or(os.Getenv("ROTA_GPUS"), nothing), quotaKeys(), os.Getenv("WITNESS_ASKED"),
	}
	if err := say(witness, strings.Join(hello, " ")+"\n"); err != nil {
		return err
	}
	var ack [1]byte
	for {
		switch n, err := unix.Read(witness, ack[:]); {
		case err == unix.EINTR:
		case err != nil:
			return fmt.Errorf("read from the witness: %w", err)
		case n == 0:
			return fmt.Errorf("the witness is gone")
		default:
			return nil
		}
	}
}

// nothing stands for a list of none.
const nothing = "-"

// quotaKeys lists the keys of quotas that this process may use.
func quotaKeys() string {
	var keys []string
	for _, v := range os.Environ() {
		if key, is := strings.CutPrefix(v, "ROTA_QUOTA_"); is {
			keys = append(keys, key)
		}
	}
	return cmp.Or(strings.Join(keys, ","), nothing)
}

// affinity lists the CPUs that the kernel lets this process run on, "-" on a
// node that does not pin.
func affinity() (string, error) {
	if os.Getenv("ROTA_CPUS") == "" {
		return nothing, nil
	}
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return "", fmt.Errorf("read the CPU affinity: %w", err)
	}
	var cpus []string
	for cpu := 0; len(cpus) < set.Count(); cpu++ {
		if set.IsSet(cpu) {
			cpus = append(cpus, strconv.Itoa(cpu))
		}
	}
	return strings.Join(cpus, ","), nil
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

func say(witness int, text string) error {
	for sent := 0; sent < len(text); {
		n, err := unix.Write(witness, []byte(text[sent:]))
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return fmt.Errorf("write to the witness: %w", err)
		}
		sent += n
	}
	return nil
}
