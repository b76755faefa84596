package agent

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"rota/agent/gpuhealth"
	"rota/agent/inventory"
)

// TestTheClusterLearnsWhichGPUsAreSick as each incarnation begins, and when the file of
// simulated GPUs changes. A file that cannot be understood changes nothing.
func TestTheClusterLearnsWhichGPUsAreSick(t *testing.T) {
	checkLeaks(t)
	c, s := newCluster(t, 2), newSupervisor(t)
	cfg := config(t, c, s)
	cfg.SimulatedGPUs = &inventory.GPUs{Class: "simulated-H100", Count: 4, MemoryBytes: 80}
	cfg.SimulatedGPUHealth = filepath.Join(t.TempDir(), "health")
	write := func(text string) {
		t.Helper()
		if err := errors.Join(os.WriteFile(cfg.SimulatedGPUHealth+".new", []byte(text), 0o600), os.Rename(cfg.SimulatedGPUHealth+".new", cfg.SimulatedGPUHealth)); err != nil {
			t.Fatal(err)
		}
	}
	write("3 XID 79\n")
	start(t, cfg)
	reported := func(want ...string) {
		t.Helper()
		c.until("reports of GPUs", func(c *cluster) bool { return slices.Equal(c.sickGPUs, want) })
	}
	reported("3: XID 79; ")
	write("3 XID 79\n0 fan\n9 nonsense\n")
	c.change(func() { c.fenced = true })
	reported("3: XID 79; ", "3: XID 79; ")
	write("0 fan\n3 XID 79\n")
	reported("3: XID 79; ", "3: XID 79; ", "0: fan; 3: XID 79; ")
	if err := os.Remove(cfg.SimulatedGPUHealth); err != nil {
		t.Fatal(err)
	}
	reported("3: XID 79; ", "3: XID 79; ", "0: fan; 3: XID 79; ", "")
}

// fakeProbe is a driver of GPUs of which a test says how they are.
type fakeProbe struct {
	lost chan bool
	xids chan uint64
}

func (p *fakeProbe) Conditions(gpu int) []gpuhealth.Condition {
	if lost := <-p.lost; lost && gpu == 0 {
		return []gpuhealth.Condition{gpuhealth.Lost}
	}
	return nil
}

func (p *fakeProbe) Wait(atMost time.Duration) (gpu int, xid uint64, ok bool) {
	select {
	case xid := <-p.xids:
		return 1, xid, true
	case <-time.After(atMost):
		return 0, 0, false
	}
}

func (p *fakeProbe) Close() {}

// TestADriverThatHangs keeps an agent neither from its work nor from its end.
func TestADriverThatHangs(t *testing.T) {
	checkLeaks(t)
	c, s := newCluster(t, 1), newSupervisor(t)
	probe := &fakeProbe{lost: make(chan bool)}
	cfg := config(t, c, s)
	cfg.gpuProbe, cfg.givesUpAfter = probe, 200*time.Millisecond
	cfg.SimulatedGPUs = &inventory.GPUs{Class: "H100", Count: 2, MemoryBytes: 80}
	stop := start(t, cfg)
	s.untilRuns(c.assign(41, "true"))
	stop()
	close(probe.lost) // the process would have ended
}

// TestXIDsOutliveTheAgent until the machine boots again; what the driver says of a GPU while it
// is so counts as well.
func TestXIDsOutliveTheAgent(t *testing.T) {
	checkLeaks(t)
	c, s := newCluster(t, 1), newSupervisor(t)
	probe := &fakeProbe{lost: make(chan bool, 100), xids: make(chan uint64, 10)}
	cfg := config(t, c, s)
	cfg.gpuProbe, cfg.bootID = probe, "first boot"
	cfg.SimulatedGPUs = &inventory.GPUs{Class: "H100", Count: 2, MemoryBytes: 80}
	for range 2 {
		probe.lost <- true
	}
	for _, xid := range []uint64{13, 79, 79} {
		probe.xids <- xid
	}
	stop := start(t, cfg)
	const both = "0: fallen off the bus; 1: XID 79 (fallen off the bus); "
	last := func(want string) {
		t.Helper()
		c.until("a report of GPUs", func(c *cluster) bool { return len(c.sickGPUs) > 0 && c.sickGPUs[len(c.sickGPUs)-1] == want })
	}
	close(probe.lost) // from now on, nothing is lost; it has to be so for a minute
	last(both)
	stop()
	last(both)
	c.change(func() { c.sickGPUs = nil })
	stop = start(t, cfg)
	last("1: XID 79 (fallen off the bus); ")
	stop()
	cfg.bootID = "second boot"
	c.change(func() { c.sickGPUs = nil })
	start(t, cfg)
	last("")
}
