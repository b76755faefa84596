package need

import (
	"fmt"
	"os"
	"testing"
)

// recorder is a test that remembers how it was ended instead of ending.
type recorder struct {
	testing.TB
	skipped, failed string
}

func (r *recorder) Helper()                   {}
func (r *recorder) Skipf(f string, a ...any)  { r.skipped = fmt.Sprintf(f, a...) }
func (r *recorder) Fatalf(f string, a ...any) { r.failed = fmt.Sprintf(f, a...) }

func TestALackSkipsUnlessItIsRequired(t *testing.T) {
	const skip, fail = "skip", "fail"
	for _, c := range []struct{ require, want string }{
		{"", skip},
		{"root,cgroup", skip},
		{"toolbox", skip},
		{"tool", fail},
		{"root,tool,netns", fail},
		{"all", fail},
	} {
		t.Run(c.require, func(t *testing.T) {
			t.Setenv(requireEnv, c.require)
			var r recorder
			Tool(&r, "sh", "no-such-program-anywhere")
			switch {
			case c.want == skip && (r.skipped == "" || r.failed != ""):
				t.Errorf("want a skip; skipped %q, failed %q", r.skipped, r.failed)
			case c.want == fail && r.failed == "":
				t.Errorf("want a failure; skipped %q", r.skipped)
			}
		})
	}
}

// Few machines that have all else have a GPU, so it is required by its own name only.
func TestAGPUIsNotPartOfAll(t *testing.T) {
	if _, err := os.Stat("/dev/nvidiactl"); err == nil {
		t.Skip("this machine has a GPU")
	}
	for require, fails := range map[string]bool{"": false, "all": false, "gpu": true, "all,gpu": true} {
		t.Setenv(requireEnv, require)
		var r recorder
		GPU(&r)
		if (r.failed != "") != fails || r.skipped == "" {
			t.Errorf("ROTA_REQUIRE=%s: skipped %q, failed %q", require, r.skipped, r.failed)
		}
	}
}

func TestAMetNeedLetsTheTestRun(t *testing.T) {
	t.Setenv(requireEnv, "all")
	var r recorder
	Tool(&r, "sh")
	if r.skipped != "" || r.failed != "" {
		t.Errorf("skipped %q, failed %q", r.skipped, r.failed)
	}
}

func TestControllersAreFoundInEitherHierarchy(t *testing.T) {
	const (
		v1 = `32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct
35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
`
		v2 = "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
	)
	readFile := func(path string) ([]byte, error) {
		if path == "/sys/fs/cgroup/unified/cgroup.controllers" {
			return []byte("cpuset pids\n"), nil
		}
		return nil, os.ErrNotExist
	}
	for _, c := range []struct{ mounts, controller, want string }{
		{v1, "cpu", "/sys/fs/cgroup/cpu,cpuacct"},
		{v1 + v2, "memory", "/sys/fs/cgroup/memory"},
		{v1 + v2, "cpuset", "/sys/fs/cgroup/unified"},
		{v1, "cpuset", ""},
		{"", "memory", ""},
	} {
		got, err := controllerRoot(c.mounts, c.controller, readFile)
		if got != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%s: %q, %v; want %q", c.controller, got, err, c.want)
		}
	}
}

func TestThisMachineAnswersEveryNeed(t *testing.T) {
	t.Setenv(requireEnv, "")
	for name, ask := range map[string]func(testing.TB){"root": Root, "cgroup": Cgroup, "netns": Netns, "fuse": FUSE, "prometheus": Prometheus, "redis": func(t testing.TB) { Redis(t) }, "node": func(t testing.TB) { NodePackages(t, "testdata/node") }} {
		r := recorder{TB: t}
		ask(&r)
		if r.failed != "" {
			t.Errorf("%s failed without being required: %s", name, r.failed)
		}
		t.Logf("%s: %q", name, r.skipped)
	}
}
