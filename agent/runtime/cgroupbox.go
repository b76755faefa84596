package runtime

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// cgroupBox is one cgroup of the same name in each hierarchy in use.
type cgroupBox struct {
	all      *cgroups
	name     string
	cgroupFD int   // of the v2 cgroup; -1: none
	pinned   []int // CPUs, where no cpuset holds them
	memory   uint64
	sealed   *usage // what was used before it was sealed; nil: it was not
}

func (b *cgroupBox) dir(h *hierarchy) string { return filepath.Join(h.base, b.name) }

// limit puts CPUs, memory and the number of processes in force. Every memory node stays
// allowed: the kernel prefers the node of the CPU that touches a page first, and a
// strict binding would turn one full node into an out-of-memory kill.
func (b *cgroupBox) limit(spec *Spec) error {
	if len(spec.CPUs) > 0 {
		if h := b.all.holder("cpuset"); h != nil {
			if err := writeFile(filepath.Join(b.dir(h), "cpuset.cpus"), IDList(spec.CPUs)); err != nil {
				return fmt.Errorf("hold CPUs %s: %w", IDList(spec.CPUs), err)
			}
		} else {
			b.pinned = spec.CPUs
		}
	}
	if h := b.all.holder("cpu"); h != nil {
		if err := weigh(h, b.dir(h), cpuPart(len(spec.CPUs))); err != nil {
			return err
		}
	}
	if c := b.all; c.hides != nil && len(spec.HiddenDevices) > 0 {
		if err := c.hides(b, spec.HiddenDevices); err != nil {
			return fmt.Errorf("hide devices: %w", err)
		}
	}
	b.memory = spec.MemoryBytes
	if err := b.limitMemory(max(b.memory, forkMemory)); err != nil {
		return err
	}
	if h := b.all.holder("pids"); h != nil {
		if err := writeFile(filepath.Join(b.dir(h), "pids.max"), strconv.Itoa(b.all.processesMax)); err != nil {
			return fmt.Errorf("limit processes to %d: %w", b.all.processesMax, err)
		}
	}
	return nil
}

// resize writes the CPUs last: what comes before does no harm if they cannot be written.
// The kernel has moved all threads when the write returns.
func (b *cgroupBox) resize(cpus []int) error {
	if h := b.all.holder("cpu"); h != nil {
		if err := weigh(h, b.dir(h), cpuPart(len(cpus))); err != nil {
			return err
		}
	}
	h := b.all.holder("cpuset")
	if err := writeFile(filepath.Join(b.dir(h), "cpuset.cpus"), IDList(cpus)); err != nil {
		return fmt.Errorf("change to CPUs %s: %w", IDList(cpus), err)
	}
	return nil
}

// forkMemory is more than the kernel charges to the cgroup for a fork.
const forkMemory = 16 << 20

func (b *cgroupBox) arm() error {
	if b.memory >= forkMemory {
		return nil // it is in force
	}
	return b.limitMemory(b.memory)
}

// limitMemory limits what the attempt may have, if anything does.
func (b *cgroupBox) limitMemory(bytes uint64) error {
	h := b.all.holder("memory")
	if b.memory == 0 || bytes > math.MaxInt64 || h == nil {
		return nil
	}
	if err := limitMemory(b.dir(h), h.v2, strconv.FormatUint(bytes, 10)); err != nil {
		return fmt.Errorf("limit memory to %d bytes: %w", bytes, err)
	}
	return nil
}

// limitMemory sets the limit with swap off, so that an attempt ends instead of
// slowing the machine down. A kernel that does not account for swap lacks the
// files for it.
func limitMemory(dir string, v2 bool, bytes string) error {
	if !v2 {
		if err := writeFile(filepath.Join(dir, "memory.limit_in_bytes"), bytes); err != nil {
			return err
		}
		return ignoreMissing(writeFile(filepath.Join(dir, "memory.memsw.limit_in_bytes"), bytes))
	}
	if err := writeFile(filepath.Join(dir, "memory.max"), bytes); err != nil {
		return err
	}
	// One process killed for memory leaves the others waiting for it: end all.
	if err := ignoreMissing(writeFile(filepath.Join(dir, "memory.oom.group"), "1")); err != nil {
		return err
	}
	return ignoreMissing(writeFile(filepath.Join(dir, "memory.swap.max"), "0"))
}

func ignoreMissing(err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// IDList writes CPUs or GPUs as cpuset files have them, and files and variables that
// commands read: 0,1,5.
func IDList(ids []int) string {
	s := make([]string, len(ids))
	for i, id := range ids {
		s[i] = strconv.Itoa(id)
	}
	return strings.Join(s, ",")
}

func (b *cgroupBox) attr(a *syscall.SysProcAttr) {
	if b.cgroupFD >= 0 {
		a.UseCgroupFD, a.CgroupFD = true, b.cgroupFD
	}
}

// enter moves the calling thread into the v1 cgroups. "0" is the caller itself,
// which the kernel moves without stopping all forks; into v2 the fork goes by
// itself.
func (b *cgroupBox) enter() error {
	for _, h := range b.all.v1 {
		if err := writeFile(filepath.Join(b.dir(h), "tasks"), "0"); err != nil {
			return fmt.Errorf("enter cgroup: %w", err)
		}
	}
	if b.pinned != nil {
		return pin(b.pinned)
	}
	return nil
}

func (b *cgroupBox) leave() error {
	for _, h := range b.all.v1 {
		if err := writeFile(filepath.Join(h.base, supervisorCgroup, "tasks"), "0"); err != nil {
			return fmt.Errorf("leave cgroup: %w", err)
		}
	}
	if b.pinned != nil {
		return pin(b.all.allowed)
	}
	return nil
}

func (b *cgroupBox) started(int) {}

func (b *cgroupBox) kill() { killCgroup(b.processDir()) }

// killForked is kill while this process forks: one of its threads is in the v1 cgroups meanwhile.
func (b *cgroupBox) killForked() {
	if b.all.v2 != nil {
		b.kill()
		return
	}
	signalAll(func() []int {
		return slices.DeleteFunc(readPIDs(filepath.Join(b.processDir(), "cgroup.procs")), func(pid int) bool { return pid == os.Getpid() })
	}, syscall.SIGKILL)
}

func (b *cgroupBox) signal(sig syscall.Signal, frozen bool) {
	find := func() []int { return readPIDs(filepath.Join(b.processDir(), "cgroup.procs")) }
	if frozen { // and stays so
		signalAll(find, sig)
		return
	}
	signalFrozen(b.processDir(), find, sig)
}

// processDir is the cgroup by which processes are found.
func (b *cgroupBox) processDir() string {
	if b.all.v2 != nil {
		return b.dir(b.all.v2)
	}
	return b.dir(b.all.holder("freezer"))
}

// killCgroup sends SIGKILL to all processes of a cgroup. With cgroup.kill that
// is one step that no fork escapes.
func killCgroup(dir string) {
	if writeFile(filepath.Join(dir, "cgroup.kill"), "1") != nil {
		signalFrozen(dir, func() []int { return readPIDs(filepath.Join(dir, "cgroup.procs")) }, syscall.SIGKILL)
	}
}

// signalFrozen sends a signal to processes that are frozen while they are found. To kill
// without cgroup.kill, the caller repeats it until none is left, as a fork may slip between.
// The library waits until the freezer reports FROZEN, which a process that hangs
// in the kernel can put off for ever; a kill must not wait for it.
func signalFrozen(dir string, find func() []int, sig syscall.Signal) {
	_ = writeFile(filepath.Join(dir, "freezer.state"), "FROZEN")
	_ = writeFile(filepath.Join(dir, "cgroup.freeze"), "1")
	signalAll(find, sig)
	_ = writeFile(filepath.Join(dir, "freezer.state"), "THAWED")
	_ = writeFile(filepath.Join(dir, "cgroup.freeze"), "0")
}

// empty reports whether nothing is inside. What cannot be read may not be empty.
func (b *cgroupBox) empty() bool {
	if v2 := b.all.v2; v2 != nil {
		events, err := os.ReadFile(filepath.Join(b.dir(v2), "cgroup.events"))
		return errors.Is(err, os.ErrNotExist) || err == nil && slices.Contains(strings.Split(string(events), "\n"), "populated 0")
	}
	procs, err := os.ReadFile(filepath.Join(b.dir(b.all.holder("freezer")), "cgroup.procs"))
	return err == nil && len(bytes.TrimSpace(procs)) == 0
}

// seal removes the cgroups, of which nothing is inside now. Nothing can get into them any more: a
// descriptor that somebody has of them is of no use. It reports false if something is inside.
func (b *cgroupBox) seal() bool {
	if b.sealed == nil {
		u := b.usage()
		b.sealed = &u
	}
	for _, h := range b.all.hierarchies() {
		if err := syscall.Rmdir(b.dir(h)); errors.Is(err, syscall.EBUSY) {
			b.sealed = nil
			return false
		}
	}
	return true
}

func (b *cgroupBox) usage() usage {
	if b.sealed != nil {
		return *b.sealed
	}
	return b.consumed()
}

// consumed is what the cgroups say of the past.
func (b *cgroupBox) consumed() (u usage) {
	if v2 := b.all.v2; v2 != nil {
		u.cpu = time.Duration(readField(filepath.Join(b.dir(v2), "cpu.stat"), "usage_usec")) * time.Microsecond
	} else if h := b.all.holder("cpuacct"); h != nil {
		u.cpu = time.Duration(readUint(filepath.Join(b.dir(h), "cpuacct.usage")))
	}
	h := b.all.holder("memory")
	if h == nil {
		return u
	}
	if h.v2 {
		u.memoryPeak = readUint(filepath.Join(b.dir(h), "memory.peak"))
		u.oomKills = readField(filepath.Join(b.dir(h), "memory.events"), "oom_kill")
		return u
	}
	u.memoryPeak = readUint(filepath.Join(b.dir(h), "memory.max_usage_in_bytes"))
	u.oomKills = readField(filepath.Join(b.dir(h), "memory.oom_control"), "oom_kill")
	return u
}

func (b *cgroupBox) release() { b.all.retire(b) }

// remove deletes the cgroups, of which nothing is inside any more.
func (b *cgroupBox) remove() {
	if b.cgroupFD >= 0 {
		syscall.Close(b.cgroupFD)
		b.cgroupFD = -1
	}
	for _, h := range b.all.hierarchies() {
		removeCgroup(b.dir(h))
	}
}
