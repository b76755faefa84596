package tensor

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"rota/agent/internal/record"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func open(t testing.TB, o Options) *Store {
	t.Helper()
	s, err := Open(o)
	must(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// roomy has room for everything that a test does.
func roomy(dir string) Options {
	return Options{MemoryBytes: 256 << 20, Dir: dir, DiskBytes: 256 << 20}
}

// scratch is a folder in memory, where the machine has one: fsync costs nothing there.
func scratch(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "rota-tensor-*")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

var texts sync.Map // of [2]int{number, n}

// text are n bytes that only this number has. The caller may change them.
func text(number, n int) []byte {
	if b, known := texts.Load([2]int{number, n}); known {
		return bytes.Clone(b.([]byte))
	}
	b := newText(number, n)
	texts.Store([2]int{number, n}, b)
	return bytes.Clone(b)
}

func newText(number, n int) []byte {
	r := rand.New(rand.NewPCG(uint64(number), 7))
	b := make([]byte, (n+7)/8*8)
	for i := 0; i < len(b); i += 8 {
		binary.LittleEndian.PutUint64(b[i:], r.Uint64())
	}
	return b[:n]
}

// content is a tensor of bytes, and what is in it.
type content struct {
	name, group string
	data        []byte
}

func (c content) tensor() Tensor {
	return Tensor{Name: c.name, DType: "uint8", Shape: []uint64{uint64(len(c.data))}, Group: c.group}
}

// begin creates a state and writes it as a worker does, through a mapping of the memfd.
func begin(t testing.TB, s *Store, k Key, contents []content) (*Creation, error) {
	t.Helper()
	var specs []Tensor
	for _, c := range contents {
		specs = append(specs, c.tensor())
	}
	creation, err := s.Create(k, specs)
	if err != nil {
		return nil, err
	}
	a, files := describe(creation.state, creation.segments)
	for i, where := range a.Tensors {
		mem, err := unix.Mmap(int(files[where.FD].Fd()), 0, int(a.Sizes[where.FD]), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		must(t, err)
		copy(mem[where.At:where.At+where.Bytes], contents[i].data)
		must(t, unix.Munmap(mem))
	}
	return creation, nil
}

func put(t testing.TB, s *Store, k Key, contents ...content) error {
	t.Helper()
	creation, err := begin(t, s, k, contents)
	if err != nil {
		return err
	}
	if _, err := creation.Commit(); err != nil {
		creation.Abort()
		return err
	}
	return nil
}

// look returns the bytes of the tensors of a state that is in memory.
func look(t testing.TB, s *Store, k Key) (map[string][]byte, error) {
	t.Helper()
	v, err := s.View(k)
	if err != nil {
		return nil, err
	}
	defer v.Close()
	found := map[string][]byte{}
	for _, x := range v.state.tensors {
		found[x.Name] = bytes.Clone(v.segments[x.group].mem[x.at : x.at+x.bytes()])
	}
	return found, nil
}

func wantState(t testing.TB, s *Store, k Key, contents ...content) {
	t.Helper()
	found, err := look(t, s, k)
	if err != nil || len(found) != len(contents) {
		t.Fatalf("%s: %d tensors, %v", k, len(found), err)
	}
	for _, c := range contents {
		if !bytes.Equal(found[c.name], c.data) {
			t.Fatalf("%s: tensor %s has other bytes", k, c.name)
		}
	}
}

func wantError(t testing.TB, err, fact error) {
	t.Helper()
	if !errors.Is(err, fact) {
		t.Fatalf("error %v, want %v", err, fact)
	}
}

func offload(t testing.TB, s *Store, k Key) Moved {
	t.Helper()
	m, err := s.Offload(k)
	must(t, err)
	return m
}

func TestAStateGoesToDiskAndBack(t *testing.T) {
	dir := t.TempDir()
	s := open(t, roomy(dir))
	k := Key{"actor", 1, 0}
	weights, small := content{"w", "weights", text(1, BlockBytes+5)}, content{"b", "", text(2, 3)}
	empty := content{"none", "", nil}
	must(t, put(t, s, k, weights, small, empty))
	wantState(t, s, k, weights, small, empty)
	if m := offload(t, s, k); m.WrittenBytes != BlockBytes+8 || m.UnchangedBytes != 0 {
		t.Errorf("%+v", m)
	}
	if st := s.Stat(); st.MemoryBytes != 0 || st.Blocks != 3 || st.LogicalBytes != BlockBytes+8 {
		t.Errorf("%+v", st)
	}
	_, err := s.View(k)
	wantError(t, err, ErrOffloaded)
	must(t, s.Close())

	s = open(t, roomy(dir))
	must(t, s.Restore(k))
	must(t, s.Restore(k)) // again: nothing to do
	wantState(t, s, k, weights, small, empty)
	if m := offload(t, s, k); m != (Moved{}) {
		t.Errorf("the state was on disk, and moved %+v", m)
	}
	must(t, s.Restore(k))
	must(t, s.Drop(k))
	if st := s.Stat(); st.States+st.Blocks != 0 || st.MemoryBytes+st.DiskBytes != 0 {
		t.Errorf("%+v", st)
	}
	if files, _ := os.ReadDir(filepath.Join(dir, blocksName)); len(files) > 0 {
		t.Errorf("%d blocks stay", len(files))
	}
}

func TestWhatWasOnlyInMemoryEndsWithTheAgent(t *testing.T) {
	dir := t.TempDir()
	s := open(t, roomy(dir))
	must(t, put(t, s, Key{"a", 1, 0}, content{"w", "", text(1, 100)}))
	must(t, s.Close())
	_, err := open(t, roomy(dir)).View(Key{"a", 1, 0})
	wantError(t, err, ErrNotFound)
}

func TestACommittedStateCannotBeWritten(t *testing.T) {
	s := open(t, roomy(t.TempDir()))
	k := Key{"a", 1, 0}
	c, err := s.Create(k, []Tensor{content{"w", "", text(1, 100)}.tensor()})
	must(t, err)
	_, files := describe(c.state, c.segments)
	worker, err := unix.Dup(int(files[0].Fd()))
	must(t, err)
	defer unix.Close(worker)
	mem, err := unix.Mmap(worker, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	must(t, err)
	if err := unix.Ftruncate(worker, 1<<20); !errors.Is(err, unix.EPERM) {
		t.Errorf("the memfd grows: %v", err)
	}
	_, err = c.Commit()
	wantError(t, err, ErrMapped)
	copy(mem, text(1, 100))
	must(t, unix.Munmap(mem))
	_, err = c.Commit() // the same creation
	must(t, err)
	if _, err := unix.Pwrite(worker, []byte("x"), 0); !errors.Is(err, unix.EPERM) {
		t.Errorf("a committed state was written: %v", err)
	}
	if _, err := unix.Mmap(worker, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err == nil {
		t.Error("a committed state was mapped for writing")
	}
	wantState(t, s, k, content{"w", "", text(1, 100)})
}

// A worker may not close the door to the seal that makes a state unchangeable.
func TestAWorkerThatSealsTheSeals(t *testing.T) {
	s := open(t, Options{MemoryBytes: 1 << 20})
	c, err := s.Create(Key{"a", 1, 0}, []Tensor{content{"w", "", text(1, 100)}.tensor()})
	must(t, err)
	_, err = unix.FcntlInt(c.segments[0].file.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_SEAL)
	must(t, err)
	_, err = c.Commit()
	wantError(t, err, ErrInvalid)
	c.Abort()
	if st := s.Stat(); st.States != 0 || st.MemoryBytes != 0 {
		t.Errorf("%+v", st)
	}
}

// Eight data-parallel replicas: equal weights, and each its shard of the optimizer. Then a
// version in which one block of the weights has changed.
func TestReplicasAreStoredOnce(t *testing.T) {
	t.Parallel()
	s := open(t, roomy(t.TempDir()))
	const weightBytes, shardBytes, ranks = BlockBytes + 123_456, 200_000, 8
	checkpoints := filepath.Join(t.TempDir(), "checkpoints")
	weights := text(1, weightBytes)
	write := func(version uint64) (m Moved) {
		for rank := range ranks {
			k := Key{"actor", version, uint32(rank)}
			must(t, put(t, s, k, content{"w", "weights", weights}, content{"adam", "optimizer", text(100+rank, shardBytes)}))
			_, err := s.Checkpoint(k, checkpoints)
			must(t, err)
		}
		if n, distinct := s.Stat().MemoryBytes, uint64(weightBytes+ranks*shardBytes); n < distinct || n > distinct*102/100 {
			t.Errorf("%d bytes of memory for %d that are distinct", n, distinct)
		}
		for rank := range ranks {
			one := offload(t, s, Key{"actor", version, uint32(rank)})
			m.WrittenBytes, m.UnchangedBytes = m.WrittenBytes+one.WrittenBytes, m.UnchangedBytes+one.UnchangedBytes
		}
		return m
	}
	distinct := uint64(weightBytes + ranks*shardBytes)
	if m := write(1); m.WrittenBytes != distinct || m.UnchangedBytes != (ranks-1)*weightBytes {
		t.Errorf("%+v, want %d written", m, distinct)
	}
	st := s.Stat()
	if st.DiskBytes < distinct || st.DiskBytes > distinct*102/100 || st.LogicalBytes != ranks*(weightBytes+shardBytes) {
		t.Errorf("%d bytes stored of %d that are distinct: %+v", st.DiskBytes, distinct, st)
	}
	written := st.WrittenBytes
	weights[1]++
	if m := write(2); m.WrittenBytes != BlockBytes {
		t.Errorf("%+v, want one block", m)
	}
	if st := s.Stat(); st.WrittenBytes != written+2*BlockBytes { // to disk, and to the checkpoint
		t.Errorf("%d bytes more written", st.WrittenBytes-written)
	}
}

func TestLimitsSayWhatToFree(t *testing.T) {
	o := roomy(t.TempDir())
	o.MemoryBytes, o.DiskBytes = 1<<20, 1<<20
	s := open(t, o)
	big := func(number int) content { return content{"w", "", text(number, 700_000)} }
	must(t, put(t, s, Key{"a", 1, 0}, big(1)))
	err := put(t, s, Key{"a", 2, 0}, big(2))
	wantError(t, err, ErrMemory)
	if want := "offload or drop states, such as a/1/0 (0.7 MiB)"; !bytes.Contains([]byte(err.Error()), []byte(want)) {
		t.Errorf("%v", err)
	}
	offload(t, s, Key{"a", 1, 0})
	must(t, put(t, s, Key{"a", 2, 0}, big(2)))
	_, err = s.Offload(Key{"a", 2, 0})
	wantError(t, err, ErrDisk)
	if want := "drop states, such as a/1/0 (0.7 MiB)"; !bytes.Contains([]byte(err.Error()), []byte(want)) {
		t.Errorf("%v", err)
	}
	wantState(t, s, Key{"a", 2, 0}, big(2)) // it stays in memory
	wantError(t, s.Restore(Key{"a", 1, 0}), ErrMemory)
	must(t, s.Drop(Key{"a", 1, 0}))
	offload(t, s, Key{"a", 2, 0})
	must(t, s.Restore(Key{"a", 2, 0}))
	wantState(t, s, Key{"a", 2, 0}, big(2))
}

func TestCopiesShareEverything(t *testing.T) {
	dir := t.TempDir()
	s := open(t, roomy(dir))
	a, b, c := Key{"actor", 1, 0}, Key{"rollout", 1, 0}, Key{"critic", 1, 0}
	w := content{"w", "", text(1, 100_000)}
	must(t, put(t, s, a, w))
	before := s.Stat()
	_, err := s.Copy(a, b)
	must(t, err)
	if st := s.Stat(); st.MemoryBytes != before.MemoryBytes || st.States != 2 {
		t.Errorf("%+v", st)
	}
	_, err = s.Copy(a, b)
	wantError(t, err, ErrExists)
	offload(t, s, a)
	_, err = s.Copy(a, c) // of a state on disk: durable at once
	must(t, err)
	must(t, s.Drop(a))
	wantState(t, s, b, w)
	must(t, s.Close())
	s = open(t, roomy(dir))
	must(t, s.Restore(c))
	wantState(t, s, c, w)
	if got := s.List(""); len(got) != 1 || got[0].Key != c {
		t.Errorf("%+v", got)
	}
}

func TestRequestsThatMakeNoSense(t *testing.T) {
	s := open(t, roomy(t.TempDir()))
	ok := Tensor{Name: "w", DType: "float32", Shape: []uint64{2, 3}}
	with := func(change func(*Tensor)) []Tensor {
		x := ok
		change(&x)
		return []Tensor{x}
	}
	for name, specs := range map[string][]Tensor{
		"none":      nil,
		"same name": {ok, ok},
		"no name":   with(func(x *Tensor) { x.Name = "" }),
		"type":      with(func(x *Tensor) { x.DType = "float31" }),
		"overflow":  with(func(x *Tensor) { x.Shape = []uint64{1 << 40, 1 << 40} }),
		"large":     with(func(x *Tensor) { x.Shape = []uint64{1 << 39} }),
		"outside":   with(func(x *Tensor) { x.Global, x.Offset = []uint64{4, 3}, []uint64{3, 0} }),
		"wraps":     with(func(x *Tensor) { x.Global, x.Offset = []uint64{4, 3}, []uint64{1<<64 - 1, 0} }),
		"half":      with(func(x *Tensor) { x.Global = []uint64{4, 3} }),
	} {
		if _, err := s.Create(Key{"a", 1, 0}, specs); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, deployment := range []string{"", ".", "..", "a/b", "a@b", "a b"} {
		_, err := s.Create(Key{deployment, 1, 0}, []Tensor{ok})
		wantError(t, err, ErrInvalid)
	}
	_, err := s.Create(Key{"a", 1, 0}, []Tensor{ok})
	must(t, err)
	_, err = s.Create(Key{"a", 1, 0}, []Tensor{ok})
	wantError(t, err, ErrExists)
	must(t, put(t, s, Key{"b", 1, 0}, content{"w", "", text(1, 10)}))
	for _, dir := range []string{"relative", s.folder.dir, filepath.Join(s.folder.dir, "x", "y")} {
		_, err = s.Checkpoint(Key{"b", 1, 0}, dir)
		wantError(t, err, ErrInvalid)
	}
	memoryOnly := open(t, Options{MemoryBytes: 1 << 20})
	_, err = memoryOnly.Offload(Key{"b", 1, 0})
	wantError(t, err, ErrNoDisk)
	_, err = Open(roomy(s.folder.dir))
	wantError(t, err, record.ErrLocked)
}

// TestStoreAgainstAModel compares a store with a map of what was acknowledged, over memory
// that is scarce, restarts of the agent, and checkpoints.
func TestStoreAgainstAModel(t *testing.T) {
	t.Parallel()
	base := scratch(t)
	rapid.Check(t, func(rt *rapid.T) {
		dir, err := os.MkdirTemp(base, "")
		must(t, err)
		defer os.RemoveAll(dir)
		o := Options{MemoryBytes: 1 << 20, Dir: filepath.Join(dir, "disk"), DiskBytes: 2 << 20}
		if rapid.Bool().Draw(rt, "roomy") {
			o.MemoryBytes, o.DiskBytes = 64<<20, 64<<20
		}
		m := &model{dir: filepath.Join(dir, "checkpoints"), states: map[Key]modelState{}, saved: map[Key][]content{}}
		m.s, err = Open(o)
		must(t, err)
		defer func() { _ = m.s.Close() }()
		rt.Repeat(map[string]func(*rapid.T){
			"create":     func(rt *rapid.T) { m.create(t, rt) },
			"offload":    func(rt *rapid.T) { m.offload(rt) },
			"restore":    func(rt *rapid.T) { m.restore(rt) },
			"checkpoint": func(rt *rapid.T) { m.checkpoint(rt) },
			"load":       func(rt *rapid.T) { m.load(rt) },
			"copy":       func(rt *rapid.T) { m.copy(rt) },
			"drop":       func(rt *rapid.T) { m.drop(rt) },
			"reopen": func(rt *rapid.T) {
				must(t, m.s.Close())
				again, err := Open(o)
				if err != nil {
					rt.Fatal(err)
				}
				m.s = again
				for k, st := range m.states {
					if st.memory = false; !st.disk {
						delete(m.states, k)
					} else {
						m.states[k] = st
					}
				}
			},
			"look": func(rt *rapid.T) {
				if k := drawKey(rt); m.states[k].memory {
					wantState(t, m.s, k, m.states[k].contents...)
				}
			},
			"": func(rt *rapid.T) { m.check(rt, o) },
		})
		for k, st := range m.states {
			if st.memory {
				wantState(t, m.s, k, st.contents...)
			}
		}
	})
}

type modelState struct {
	contents     []content
	memory, disk bool
}

type model struct {
	s      *Store
	dir    string
	states map[Key]modelState
	saved  map[Key][]content
}

func drawKey(rt *rapid.T) Key {
	return Key{rapid.SampledFrom([]string{"a", "b"}).Draw(rt, "deployment"), rapid.Uint64Range(1, 2).Draw(rt, "version"), rapid.Uint32Range(0, 1).Draw(rt, "rank")}
}

// expect says what an error has to be: one of those that the model cannot foresee, or the
// one that it does.
func expect(rt *rapid.T, err, fact error, also ...error) (done bool) {
	for _, a := range also {
		if errors.Is(err, a) {
			return false
		}
	}
	if fact != nil && !errors.Is(err, fact) || fact == nil && err != nil {
		rt.Fatalf("error %v, want %v", err, fact)
	}
	return err == nil
}

func (m *model) absent(k Key) error {
	if _, there := m.states[k]; !there {
		return ErrNotFound
	}
	return nil
}

func (m *model) taken(k Key) error {
	if _, there := m.states[k]; there {
		return ErrExists
	}
	return nil
}

func (m *model) create(t *testing.T, rt *rapid.T) {
	k := drawKey(rt)
	var contents []content
	for i := range rapid.IntRange(1, 3).Draw(rt, "tensors") {
		n := rapid.SampledFrom([]int{0, 1, 4096, 100_000, 300_000}).Draw(rt, "bytes")
		group := rapid.SampledFrom([]string{"", "g"}).Draw(rt, "group")
		contents = append(contents, content{fmt.Sprint(i), group, text(rapid.IntRange(0, 2).Draw(rt, "number"), n)})
	}
	if expect(rt, put(t, m.s, k, contents...), m.taken(k), ErrMemory) {
		m.states[k] = modelState{contents: contents, memory: true}
	}
}

func (m *model) offload(rt *rapid.T) {
	k := drawKey(rt)
	_, err := m.s.Offload(k)
	if expect(rt, err, m.absent(k), ErrDisk) {
		m.states[k] = modelState{contents: m.states[k].contents, disk: true}
	}
}

func (m *model) restore(rt *rapid.T) {
	k := drawKey(rt)
	if st := m.states[k]; expect(rt, m.s.Restore(k), m.absent(k), ErrMemory) {
		st.memory = true
		m.states[k] = st
	}
}

func (m *model) checkpoint(rt *rapid.T) {
	k := drawKey(rt)
	_, err := m.s.Checkpoint(k, m.dir)
	if expect(rt, err, m.absent(k)) {
		m.saved[k] = m.states[k].contents
	}
}

func (m *model) load(rt *rapid.T) {
	k, as := drawKey(rt), drawKey(rt)
	want := m.taken(as)
	if _, there := m.saved[k]; !there {
		want = ErrNotFound
	}
	_, err := m.s.Load(m.dir, k, as)
	if expect(rt, err, want, ErrMemory) {
		m.states[as] = modelState{contents: m.saved[k], memory: true}
	}
}

func (m *model) copy(rt *rapid.T) {
	from, to := drawKey(rt), drawKey(rt)
	want := m.absent(from)
	if want == nil {
		want = m.taken(to)
	}
	_, err := m.s.Copy(from, to)
	if expect(rt, err, want) {
		m.states[to] = m.states[from]
	}
}

func (m *model) drop(rt *rapid.T) {
	k := drawKey(rt)
	if expect(rt, m.s.Drop(k), m.absent(k)) {
		delete(m.states, k)
	}
}

func (m *model) check(rt *rapid.T, o Options) {
	st := m.s.Stat()
	if st.MemoryBytes > o.MemoryBytes || st.DiskBytes > o.DiskBytes || st.Corrupt > 0 || st.States != len(m.states) {
		rt.Fatalf("%+v, want %d states", st, len(m.states))
	}
	anyMemory, anyDisk := false, false
	for k, want := range m.states {
		info, err := m.s.Info(k)
		if err != nil || info.InMemory != want.memory || info.OnDisk != want.disk {
			rt.Fatalf("%+v, %v: want memory %v, disk %v", info, err, want.memory, want.disk)
		}
		anyMemory, anyDisk = anyMemory || want.memory, anyDisk || want.disk
	}
	if !anyMemory && st.MemoryBytes > 0 || !anyDisk && st.DiskBytes > 0 {
		rt.Fatalf("nothing is there, and takes %+v", st)
	}
}

// TestOperationsDoNotWaitForEachOther holds an offload and a checkpoint up in the middle of
// their I/O, and uses other states meanwhile.
func TestOperationsDoNotWaitForEachOther(t *testing.T) {
	dir := scratch(t)
	s := open(t, roomy(filepath.Join(dir, "disk")))
	a, twin, other := Key{"a", 1, 0}, Key{"a", 2, 0}, Key{"a", 3, 0}
	w := content{"w", "", text(1, 1000)}
	must(t, put(t, s, a, w))
	must(t, put(t, s, twin, w))
	offload(t, s, a)
	shared := s.states[a].blocks[0]
	shared.mu.Lock() // as if its file were being written
	slow := filepath.Join(dir, "slow")
	_, err := openFolder(slow)
	must(t, err)
	fifo := folder{dir: slow}.block(shared.hash)
	must(t, unix.Mkfifo(fifo, 0o600)) // whoever reads it waits for a writer
	offloaded, saved := make(chan error, 1), make(chan error, 1)
	go func() { _, err := s.Offload(twin); offloaded <- err }()
	go func() { _, err := s.Checkpoint(a, slow); saved <- err }()

	must(t, put(t, s, other, content{"w", "", text(2, 1000)}))
	offload(t, s, other)
	must(t, s.Restore(other))
	_, err = s.Checkpoint(other, filepath.Join(dir, "fast"))
	must(t, err)
	_, err = s.Copy(other, Key{"b", 1, 0})
	must(t, err)
	must(t, s.Drop(other))
	s.Stat()
	s.List("")
	if len(offloaded)+len(saved) > 0 {
		t.Error("an operation that was held up has ended")
	}
	shared.mu.Unlock()
	must(t, <-offloaded)
	writer, err := os.OpenFile(fifo, os.O_WRONLY, 0) // ends the wait
	must(t, err)
	must(t, writer.Close())
	must(t, <-saved)
	_, err = s.Load(slow, a, Key{"c", 1, 0})
	must(t, err)
	wantState(t, s, Key{"c", 1, 0}, w)
}

func TestOperationsEndWithTheAgent(t *testing.T) {
	s := open(t, roomy(scratch(t)))
	k := Key{"a", 1, 0}
	must(t, put(t, s, k, content{"w", "", text(1, 1000)}))
	s.Interrupt()
	_, err := s.Offload(k)
	wantError(t, err, ErrClosed)
	if st := s.Stat(); st.Blocks != 0 || st.States != 1 {
		t.Errorf("%+v", st)
	}
}
