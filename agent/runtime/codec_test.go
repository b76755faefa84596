package runtime

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/containerd/cgroups/v3/cgroup1"
	"time"

	"rota/agent/plan"
)

func k(n uint64) plan.Key { return plan.Key{Action: n, Attempt: 1, Incarnation: 1} }

func writeJournal(t *testing.T, path string, recs ...*record) {
	t.Helper()
	j, _, err := openJournal(path)
	if err != nil {
		t.Fatal(err)
	}
	defer j.close()
	for _, r := range recs {
		if err := j.write(r); err != nil {
			t.Fatal(err)
		}
	}
}

func readJournal(t *testing.T, path string) (started []plan.Key, ended []plan.Key) {
	t.Helper()
	j, h, err := openJournal(path)
	if err != nil {
		t.Fatal(err)
	}
	defer j.close()
	for key := range h.started {
		started = append(started, key)
	}
	for _, e := range h.exits() {
		ended = append(ended, e.Key)
	}
	return started, ended
}

func start1(n uint64) *record { key := k(n); return &record{Start: &key} }
func end1(n uint64) *record {
	return &record{End: &plan.Exit{Key: k(n), Reason: plan.ReasonExited, Stdout: []byte("x")}}
}

func TestAJournalRemembers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	writeJournal(t, path, start1(1), start1(2), end1(2), start1(3), end1(3), &record{Forget: []plan.Key{k(3)}})
	started, ended := readJournal(t, path)
	if !reflect.DeepEqual(started, []plan.Key{k(1)}) || !reflect.DeepEqual(ended, []plan.Key{k(2)}) {
		t.Errorf("started %v, ended %v", started, ended)
	}
}

// A supervisor can die within any write, and a disk can damage any byte: what
// was written before that is believed, and what is written later is read.
func TestATornTailIsCutOff(t *testing.T) {
	whole, err := appendRecord(nil, end1(1))
	if err != nil {
		t.Fatal(err)
	}
	flipped := bytes.Clone(whole)
	flipped[len(flipped)-1] ^= 1
	huge := binary.BigEndian.AppendUint32(nil, 1<<31)
	tails := map[string][]byte{"half a record": whole[:len(whole)/2], "a flipped bit": flipped, "a huge length": append(huge, 1, 2, 3, 4)}
	for n := range recordHead {
		tails["a part of the head: "+whole2(n)] = whole[:n]
	}
	for name, tail := range tails {
		path := filepath.Join(t.TempDir(), "journal")
		writeJournal(t, path, start1(1), start1(2))
		f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Write(tail); err != nil {
			t.Fatal(err)
		}
		f.Close()
		writeJournal(t, path, end1(2))
		started, ended := readJournal(t, path)
		if !reflect.DeepEqual(started, []plan.Key{k(1)}) || !reflect.DeepEqual(ended, []plan.Key{k(2)}) {
			t.Errorf("%s: started %v, ended %v", name, started, ended)
		}
	}
}

func whole2(n int) string { return string(rune('0' + n)) }

func TestCompactionKeepsWhatCounts(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	j, _, err := openJournal(path)
	if err != nil {
		t.Fatal(err)
	}
	for n := range uint64(1000) {
		if err := j.write(start1(n), end1(n)); err != nil {
			t.Fatal(err)
		}
	}
	before := j.size
	if err := j.rewrite([]*record{start1(7), end1(8)}); err != nil {
		t.Fatal(err)
	}
	if err := j.write(end1(7)); err != nil {
		t.Fatal(err)
	}
	if j.size > before/100 {
		t.Errorf("%d bytes after compaction, %d before", j.size, before)
	}
	j.close()
	if started, ended := readJournal(t, path); len(started) != 0 || !reflect.DeepEqual(ended, []plan.Key{k(8), k(7)}) {
		t.Errorf("started %v, ended %v", started, ended)
	}
}

func TestOptionsSurviveTheCommandLine(t *testing.T) {
	o, err := SuperviseOptions{
		Dir: "/d", Linger: time.Second, Mode: ModeAffinity, CgroupParent: "a/b", User: "1:2",
		OutputBytesMax: 3, OutputKeepBytes: 4, OutputKeepFor: 5 * time.Minute, OutputKeepCount: 6, HideDevices: true,
	}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	got, err := ParseSuperviseArgs(SuperviseArgs(o)[1:])
	if err != nil || got != o {
		t.Errorf("got %+v, %v\nwant %+v", got, err, o)
	}
	for _, bad := range [][]string{{}, {"--dir=/d", "--mode=x"}, {"--dir=/d", "--user=root"}, {"--dir=/d", "--user=1:-1"},
		{"--dir=/d", "--cgroup-parent=../x"}, {"--dir=/d", "more"}, {"--dir=/d", "--nothing"}} {
		if _, err := ParseSuperviseArgs(bad); !errors.Is(err, ErrInvalidOptions) {
			t.Errorf("%v: %v", bad, err)
		}
	}
}

// Controllers that share a mount have symbolic links beside it.
func TestControllersAreGroupedByMount(t *testing.T) {
	root := t.TempDir()
	for _, dir := range []string{"cpu,cpuacct", "freezer"} {
		if err := os.Mkdir(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, link := range []string{"cpu", "cpuacct"} {
		if err := os.Symlink("cpu,cpuacct", filepath.Join(root, link)); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	for _, h := range groupByMount([]cgroup1.Subsystem{cgroup1.NewCpu(root), cgroup1.NewMemory(root),
		cgroup1.NewFreezer(root), cgroup1.NewCpuacct(root)}) {
		got = append(got, filepath.Base(h.mount)+": "+strings.Join(h.controllers, " "))
	}
	if want := []string{"cpu,cpuacct: cpu cpuacct", "freezer: freezer"}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func FuzzJournal(f *testing.F) {
	var b []byte
	for _, r := range []*record{start1(1), end1(1), {Forget: []plan.Key{k(1)}}, {Boot: &bootRecord{PID: 1}}, {Child: &childRecord{Key: k(1)}}} {
		b, _ = appendRecord(b, r)
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		h, end, torn := replay(bytes.NewReader(data))
		if end < 0 || end > int64(len(data)) || torn != (end < int64(len(data))) {
			t.Fatalf("end %d of %d, torn %v", end, len(data), torn)
		}
		// What is believed is believed again without the rest.
		again, end2, torn2 := replay(bytes.NewReader(data[:end]))
		if end2 != end || torn2 || !reflect.DeepEqual(h, again) {
			t.Fatal("the cut changed what was read")
		}
	})
}
