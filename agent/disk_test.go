package agent

import (
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"rota/agent/plan"
)

// fakeDisk has as many free bytes as it is told, of 1000 MiB, and 1000 inodes.
func fakeDisk(floor *uint64, free, inodes *atomic.Int64) *disk {
	d := newDisk(&Config{Name: "n1", Dir: "/data", DiskFloor: floor, Logger: hclog.NewNullLogger()})
	d.read = func(string) (room, error) {
		if free.Load() < 0 {
			return room{}, errors.New("unreadable")
		}
		return room{uint64(free.Load()) << 20, 1000 << 20, uint64(inodes.Load()), 1000}, nil
	}
	return d
}

func TestADiskIsLowBelowItsFloor(t *testing.T) {
	var free, inodes atomic.Int64
	inodes.Store(500)
	set, none := uint64(100<<20), uint64(0)
	for _, c := range []struct {
		what  string
		floor *uint64
		// free space in MiB as it is seen, and whether that is low
		free []int64
		low  []bool
	}{
		{"a twentieth", nil, []int64{51, 50, 49, 54, 56, 49}, []bool{false, false, true, true, false, true}},
		{"given", &set, []int64{99, 109, 110, 100, 0}, []bool{true, true, false, false, true}},
		{"none", &none, []int64{0}, []bool{false}},
		{"unreadable", &set, []int64{99, -1, 200, -1}, []bool{true, true, false, false}},
	} {
		d := fakeDisk(c.floor, &free, &inodes)
		for i, mib := range c.free {
			free.Store(mib)
			d.look()
			if low, _ := d.state(); low != c.low[i] {
				t.Errorf("%s: with %v MiB low is %v", c.what, c.free[:i+1], low)
			}
		}
	}
	d := fakeDisk(&set, &free, &inodes)
	free.Store(900)
	inodes.Store(9)
	if d.look(); !d.low {
		t.Error("without inodes it is not low")
	}
}

func TestFailuresOnALowDiskSayThatItWasLow(t *testing.T) {
	var free, inodes atomic.Int64
	inodes.Store(500)
	free.Store(20)
	d := fakeDisk(nil, &free, &inodes)
	exited := plan.Exit{Reason: plan.ReasonExited, ExitCode: 1, Exec: time.Second}
	if m := d.explain(exited).Message; !strings.Contains(m, "disk of node n1 was low") || !strings.Contains(m, "20 of 1000 MiB") {
		t.Errorf("says %q", m)
	}
	free.Store(500)
	d.look()
	if m := d.explain(exited).Message; m == "" {
		t.Error("what ran while it was low does not say so once there is room again")
	}
	d.lowAt = time.Now().Add(-3 * time.Second)
	failed := plan.Exit{Reason: plan.ReasonStartFailed, Message: "mkdir", Exec: time.Minute}
	if m := d.explain(failed).Message; !strings.HasPrefix(m, "mkdir; the disk") {
		t.Errorf("says %q", m)
	}
	for _, e := range []plan.Exit{
		exited, // began after it was low
		{Reason: plan.ReasonExited, Exec: time.Minute},
		{Reason: plan.ReasonTimeout, Signal: 9, Exec: time.Minute, Message: "timeout"},
	} {
		if m := d.explain(e).Message; m != e.Message {
			t.Errorf("%v says %q", e.Reason, m)
		}
	}
}

// The cluster learns how the disk is with each registration, and of each change.
func TestTheClusterLearnsThatTheDiskIsLow(t *testing.T) {
	checkLeaks(t)
	c, s := newCluster(t, 2), newSupervisor(t)
	var free, inodes atomic.Int64
	inodes.Store(500)
	free.Store(10)
	cfg := config(t, c, s)
	cfg.readRoom = fakeDisk(nil, &free, &inodes).read
	start(t, cfg)
	reported := func(want ...bool) {
		t.Helper()
		c.until("reports of the disk", func(c *cluster) bool { return slices.Equal(c.lowDisk, want) })
	}
	reported(true)
	free.Store(500)
	reported(true, false)
	c.change(func() { c.fenced = true })
	reported(true, false, false)
	key := c.assign(41)
	s.untilRuns(key)
	free.Store(10)
	reported(true, false, false, true)
	s.finish(key) // what runs goes on
	c.result(key)
}
