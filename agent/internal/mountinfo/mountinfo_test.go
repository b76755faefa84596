package mountinfo_test

import (
	"slices"
	"testing"

	"rota/agent/internal/mountinfo"
)

func TestParse(t *testing.T) {
	got := mountinfo.Parse("22 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n" +
		"31 22 0:31 / /run/k\\040v rw master:3 shared:7 - fuse.rota-kv rota-kv rw\nwhat is this\n")
	want := []mountinfo.Mount{{Point: "/", Type: "ext4", Source: "/dev/vda"}, {Point: "/run/k v", Type: "fuse.rota-kv", Source: "rota-kv", Shared: true}}
	if !slices.Equal(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if mounts, err := mountinfo.Read(); err != nil || len(mounts) == 0 {
		t.Errorf("nothing is mounted here: %v", err)
	}
}
