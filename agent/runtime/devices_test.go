package runtime_test

import (
	"testing"

	"rota/agent/plan"
	"rota/agent/runtime"
	"rota/internal/need"
)

// Devices that stand for GPUs: every machine has them, and nothing needs them.
var zero, full = runtime.Device{Major: 1, Minor: 5}, runtime.Device{Major: 1, Minor: 7}

// TestDevicesAreHidden: from the attempt that they are hidden from, by whatever name, and from no
// other.
func TestDevicesAreHidden(t *testing.T) {
	need.Cgroup(t)
	forEachMode(t, func(t *testing.T, mode string) {
		o := options(t.TempDir(), mode)
		o.HideDevices = true
		c := dial(t, o)
		if !c.Describe().HidesDevices {
			t.Skipf("mode %s cannot hide devices on this machine", mode)
		}
		const look = `for d in zero full null; do (: < /dev/$d) 2>/dev/null && printf "$d "; done; true`
		for i, at := range []struct {
			hidden []runtime.Device
			want   string
		}{
			{nil, "zero full null "},
			{[]runtime.Device{full}, "zero null "},
			{[]runtime.Device{zero, full}, "null "},
			{[]runtime.Device{zero}, "full null "},
		} {
			spec := shell(key(uint64(i)+1), look)
			spec.HiddenDevices = at.hidden
			if e := runOne(t, c, spec); string(e.Stdout) != at.want || e.Reason != plan.ReasonExited {
				t.Errorf("with %v hidden it can open %q, want %q: %+v", at.hidden, e.Stdout, at.want, e)
			}
		}
		other := shell(key(1000), `mknod other c 1 5 && : < other`)
		other.HiddenDevices = []runtime.Device{zero}
		if e := runOne(t, c, other); e.ExitCode == 0 {
			t.Errorf("a hidden device can be opened by another name: %+v", e)
		}
	})
}

// TestNothingIsHiddenUnlessAsked: a supervisor without the option says that it cannot.
func TestNothingIsHiddenUnlessAsked(t *testing.T) {
	c := dial(t, options(t.TempDir(), ""))
	if c.Describe().HidesDevices {
		t.Error("it says that it hides devices")
	}
	spec := shell(key(1), ": < /dev/zero")
	spec.HiddenDevices = []runtime.Device{zero}
	if e := runOne(t, c, spec); e.ExitCode != 0 {
		t.Errorf("%+v", e)
	}
}
