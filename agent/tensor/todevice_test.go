package tensor

import (
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/hashicorp/go-hclog"

	"rota/agent/tensor/device"
)

// faulty is a device that does what a test asks for instead of its work.
type faulty struct {
	device.Device
	copyIn  func() error
	copyOut func(host []byte) error
	pin     error
	pins    atomic.Int64
}

func (f *faulty) Allocate(n uint64) (device.Memory, error) {
	m, err := f.Device.Allocate(n)
	return &faultyMemory{m, f}, err
}

func (f *faulty) Pin(host []byte) (func(), error) {
	if f.pin != nil {
		return nil, f.pin
	}
	f.pins.Add(1)
	return func() { f.pins.Add(-1) }, nil
}

type faultyMemory struct {
	device.Memory
	device *faulty
}

func (m *faultyMemory) CopyIn(at uint64, host []byte) error {
	if m.device.copyIn != nil {
		return m.device.copyIn()
	}
	return m.Memory.CopyIn(at, host)
}

func (m *faultyMemory) CopyOut(host []byte, at uint64) error {
	if err := m.Memory.CopyOut(host, at); err != nil || m.device.copyOut == nil {
		return err
	}
	return m.device.copyOut(host)
}

func simulated(t testing.TB, bytes uint64) device.Device {
	t.Helper()
	d, _, err := device.Open(device.Spec{Kind: device.Simulated, Bytes: bytes})
	must(t, err)
	return d
}

// withDevice opens a store with room, and a device that the test can make fail.
func withDevice(t testing.TB, bytes uint64) (*Store, *faulty) {
	t.Helper()
	d := &faulty{Device: simulated(t, bytes)}
	o := roomy(scratch(t))
	o.Device = d
	return open(t, o), d
}

func TestAStateGoesToTheDeviceAndBack(t *testing.T) {
	s, d := withDevice(t, 16<<20)
	k := Key{"actor", 1, 0}
	contents := []content{{"w", "weights", text(1, BlockBytes+5)}, {"b", "", text(2, 3)}, {"none", "", nil}}
	must(t, put(t, s, k, contents...))
	must(t, s.ToDevice(k, false))
	must(t, s.ToDevice(k, false)) // again: nothing to do
	if st := s.Stat(); st.MemoryBytes != 0 || st.DeviceBytes != BlockBytes+3*4096 || st.Device != "simulated" || st.DeviceBytesMax != 16<<20 {
		t.Errorf("%+v", st)
	}
	if i, err := s.Info(k); err != nil || !i.OnDevice || i.InMemory || i.OnDisk {
		t.Errorf("%+v, %v", i, err)
	}
	_, err := s.View(k)
	wantError(t, err, ErrOnDevice)
	wantError(t, s.Restore(k), ErrOnDevice)
	_, err = s.Checkpoint(k, scratch(t))
	wantError(t, err, ErrOnDevice)
	_, err = s.Read(Slice{Deployment: "actor", Version: 1, Name: "w"})
	wantError(t, err, ErrOnDevice)

	must(t, s.ToHost(k, true, true))
	wantState(t, s, k, contents...)
	if i, err := s.Info(k); err != nil || !i.OnDevice || !i.InMemory {
		t.Errorf("%+v, %v", i, err)
	}
	must(t, s.ToDevice(k, true))
	must(t, s.ToHost(k, false, false))
	if st := s.Stat(); st.DeviceBytes != 0 {
		t.Errorf("%+v", st)
	}
	wantState(t, s, k, contents...)
	must(t, s.ToDevice(k, false))
	if m := offload(t, s, k); m.WrittenBytes != BlockBytes+8 { // from the device through the host
		t.Errorf("%+v", m)
	}
	if st := s.Stat(); st.DeviceBytes+st.MemoryBytes != 0 || st.DiskBytes == 0 {
		t.Errorf("%+v", st)
	}
	wantError(t, s.ToDevice(k, false), ErrOffloaded)
	wantError(t, s.ToHost(k, false, true), ErrOffloaded)
	must(t, s.Restore(k))
	wantState(t, s, k, contents...)
	must(t, s.Drop(k))
	must(t, s.Close())
	if n := d.pins.Load(); n != 0 {
		t.Errorf("%d memories are still pinned", n)
	}
}

func TestWithoutADevice(t *testing.T) {
	s := open(t, Options{MemoryBytes: 1 << 20})
	must(t, put(t, s, Key{"a", 1, 0}, content{"w", "", text(1, 10)}))
	wantError(t, s.ToDevice(Key{"a", 1, 0}, false), ErrNoDevice)
	wantError(t, s.ToHost(Key{"a", 1, 0}, false, true), ErrNoDevice)
	_, err := s.DeviceView(Key{"a", 1, 0})
	wantError(t, err, ErrNoDevice)
}

// Equal groups are on the device once, however they got there.
func TestOnTheDeviceGroupsAreSharedToo(t *testing.T) {
	s, _ := withDevice(t, 1<<20)
	a, b, c := Key{"a", 1, 0}, Key{"a", 1, 1}, Key{"b", 1, 0}
	w := content{"w", "weights", text(1, 100_000)}
	must(t, put(t, s, a, w, content{"adam", "optimizer", text(2, 4096)}))
	must(t, put(t, s, b, w, content{"adam", "optimizer", text(3, 4096)}))
	must(t, s.ToDevice(a, false))
	must(t, s.ToDevice(b, false))
	_, err := s.Copy(a, c)
	must(t, err)
	if n := s.Stat().DeviceBytes; n != 25*4096+2*4096 {
		t.Errorf("%d bytes on the device", n)
	}
	must(t, s.Drop(a))
	must(t, s.ToHost(b, false, true))
	wantState(t, s, b, w, content{"adam", "optimizer", text(3, 4096)})
	must(t, s.ToHost(c, false, true))
	wantState(t, s, c, w, content{"adam", "optimizer", text(2, 4096)})
	if st := s.Stat(); st.DeviceBytes != 0 || st.MemoryBytes != 27*4096 {
		t.Errorf("%+v", st)
	}
}

func TestAFullDeviceSaysWhatToMove(t *testing.T) {
	s, _ := withDevice(t, 1<<20)
	a, b := Key{"a", 1, 0}, Key{"b", 1, 0}
	must(t, put(t, s, a, content{"w", "", text(1, 700_000)}))
	must(t, put(t, s, b, content{"v", "v", text(2, 300_000)}, content{"w", "w", text(3, 400_000)}))
	must(t, s.ToDevice(a, false))
	err := s.ToDevice(b, false)
	wantError(t, err, ErrDevice)
	if want := "copy to the host or drop states, such as a/1/0 (0.7 MiB)"; !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "simulated") {
		t.Errorf("%v", err)
	}
	if i, err := s.Info(b); err != nil || i.OnDevice || !i.InMemory || s.Stat().DeviceBytes != 171*4096 { // v is not left there
		t.Errorf("%+v, %v, %d bytes", i, err, s.Stat().DeviceBytes)
	}
	must(t, s.ToHost(a, false, true))
	must(t, s.ToDevice(b, false))
}

// Any bit that changes on the device is noticed before a worker gets it.
func TestDamageOnTheDevice(t *testing.T) {
	s, d := withDevice(t, 1<<20)
	k, saved := Key{"a", 1, 0}, Key{"b", 1, 0}
	w, other := content{"w", "", text(1, 5000)}, content{"w", "", text(2, 5000)}
	must(t, put(t, s, k, w))
	must(t, put(t, s, saved, other))
	offload(t, s, saved)
	must(t, s.Restore(saved))
	must(t, s.ToDevice(k, false))
	must(t, s.ToDevice(saved, false))
	for i := range 300 {
		d.copyOut = func(host []byte) error { host[i*16] ^= 1 << (i % 8); return nil }
		wantError(t, s.ToHost(k, false, true), ErrCorrupt)
		if info, _ := s.Info(k); !info.OnDevice || info.InMemory {
			t.Fatalf("%+v", info)
		}
	}
	err := s.ToHost(saved, false, true) // which is on disk as well
	wantError(t, err, ErrCorrupt)
	if !strings.Contains(err.Error(), "restore the state from disk") || s.Stat().Corrupt != 301 {
		t.Errorf("%v, %+v", err, s.Stat())
	}
	must(t, s.Restore(saved))
	wantState(t, s, saved, other)
	must(t, s.ToHost(k, false, false)) // the caller does without, but no disk gets the bytes
	_, err = s.Offload(k)
	wantError(t, err, ErrCorrupt)
	d.copyOut = nil
	must(t, s.ToDevice(saved, false))
	must(t, s.ToHost(saved, false, true))
	wantState(t, s, saved, other)
}

// A copy that was found corrupt does not come back with the next to_device, though a worker has it
// open still.
func TestADamagedCopyIsNotAttachedAgain(t *testing.T) {
	s, _ := withDevice(t, 1<<20)
	k, twin := Key{"a", 1, 0}, Key{"b", 1, 0}
	w := content{"w", "", text(1, 5000)}
	must(t, put(t, s, k, w))
	offload(t, s, k)
	must(t, s.Restore(k))
	must(t, s.ToDevice(k, false))
	s.mu.Lock()
	worker := &DeviceView{store: s, copies: s.holdCopies(s.states[k])} // simulated memory has no handles
	s.mu.Unlock()
	must(t, worker.copies[0].memory.CopyIn(0, text(2, 100)))
	wantError(t, s.ToHost(k, false, true), ErrCorrupt)
	must(t, s.Restore(k))
	must(t, s.ToDevice(k, false))
	must(t, s.ToHost(k, true, true))
	wantState(t, s, k, w)
	worker.Close()
	must(t, put(t, s, twin, w))
	must(t, s.ToDevice(twin, false))
	if n := s.Stat().DeviceBytes; n != 8192 {
		t.Errorf("%d bytes on the device: the end of the worker made the new copy unknown", n)
	}
}

// Memory that to_host has filled without a comparison, and what is copied from it, is no other state's.
func TestBytesThatWereNotComparedAreNotShared(t *testing.T) {
	s, d := withDevice(t, 1<<20)
	k, other, saved := Key{"a", 1, 0}, Key{"b", 1, 0}, scratch(t)
	w := content{"w", "", text(1, 5000)}
	must(t, put(t, s, k, w))
	_, err := s.Checkpoint(k, saved)
	must(t, err)
	must(t, s.ToDevice(k, false))
	d.copyOut = func(host []byte) error { host[100] ^= 4; return nil }
	must(t, s.ToHost(k, false, false))
	d.copyOut = nil
	_, err = s.Load(saved, k, other)
	must(t, err)
	wantState(t, s, other, w)
	must(t, s.Drop(other))
	must(t, put(t, s, other, w))
	wantState(t, s, other, w)
	must(t, s.ToDevice(k, false))
	must(t, s.ToDevice(other, false))
	must(t, s.ToHost(other, true, true))
	wantState(t, s, other, w)
	must(t, s.ToHost(k, false, true)) // takes the memory of the other one
	wantState(t, s, k, w)
	must(t, s.Drop(k))
	must(t, s.Drop(other))
	if st := s.Stat(); st.MemoryBytes+st.DeviceBytes != 0 {
		t.Errorf("%+v", st)
	}
}

func TestADeviceThatFails(t *testing.T) {
	s, d := withDevice(t, 1<<20)
	k := Key{"a", 1, 0}
	w := content{"w", "", text(1, 5000)}
	must(t, put(t, s, k, w))
	d.copyIn = func() error { return device.ErrFailed }
	wantError(t, s.ToDevice(k, false), ErrDeviceFailed)
	if st := s.Stat(); st.DeviceBytes != 0 || st.MemoryBytes != 8192 {
		t.Errorf("%+v", st)
	}
	d.copyIn = nil
	must(t, s.ToDevice(k, false))
	d.copyOut = func([]byte) error { return device.ErrFailed }
	wantError(t, s.ToHost(k, false, true), ErrDeviceFailed)
	wantError(t, s.ToHost(k, false, false), ErrDeviceFailed)
	if st := s.Stat(); st.DeviceBytes != 8192 || st.MemoryBytes != 0 {
		t.Errorf("%+v", st)
	}
	d.copyOut = nil
	must(t, s.ToHost(k, false, true))
	wantState(t, s, k, w)
	_, err := s.DeviceView(k)
	wantError(t, err, ErrNotFound)
	must(t, s.ToDevice(k, true))
	_, err = s.DeviceView(k)
	wantError(t, err, ErrNoHandle)
	s.Interrupt()
	must(t, s.ToHost(k, true, true)) // nothing to do
	must(t, s.ToDevice(k, false))
	wantError(t, s.ToHost(k, false, true), ErrClosed)
}

// That memory cannot be pinned is said once, and copies go on.
func TestHostMemoryThatCannotBePinned(t *testing.T) {
	var said strings.Builder
	d := &faulty{Device: simulated(t, 1<<20), pin: errors.New("the limit is 0")}
	s := open(t, Options{MemoryBytes: 1 << 20, Device: d, Logger: hclog.New(&hclog.LoggerOptions{Output: &said})})
	for version := range uint64(3) {
		k := Key{"a", version, 0}
		w := content{"w", "", text(int(version), 10)}
		must(t, put(t, s, k, w))
		must(t, s.ToDevice(k, false))
		must(t, s.ToHost(k, false, true))
		wantState(t, s, k, w)
	}
	if n := strings.Count(said.String(), "not pinned"); n != 1 {
		t.Errorf("said %d times:\n%s", n, said.String())
	}
}

// Memory that the agent alone has seen is filled again, with its pages; what a worker may
// map is not.
func TestMemoryIsFilledAgain(t *testing.T) {
	const size = readyBytesMin + 10
	s, d := withDevice(t, 8<<20)
	a, b := Key{"a", 1, 0}, Key{"b", 1, 0}
	first, second := content{"w", "", text(1, size)}, content{"w", "", text(2, size-7)}
	must(t, put(t, s, a, first))
	must(t, put(t, s, b, second))
	must(t, s.ToDevice(a, false))
	must(t, s.ToDevice(b, false))
	must(t, s.ToHost(a, true, false))
	file := s.states[a].segments[0].file
	must(t, s.ToDevice(a, false))
	if st := s.Stat(); st.MemoryBytes != 0 || st.ReadyBytes != readyBytesMin+4096 {
		t.Fatalf("%+v", st)
	}
	must(t, s.ToHost(b, true, true))
	s.mu.Lock()
	for s.freeing > 0 { // the memory that workers wrote is unpinned when it goes
		s.freed.Wait()
	}
	g := s.states[b].segments[0]
	s.mu.Unlock()
	if g.file != file || g.private || d.pins.Load() != 1 {
		t.Errorf("other memory was taken, or it is private as before: %t, %d pins", g.private, d.pins.Load())
	}
	for _, c := range g.mem[size-7:] {
		if c != 0 {
			t.Fatal("bytes of another state are behind the tensor")
		}
	}
	wantState(t, s, b, second) // by a view, as a worker's
	wantUnwritable(t, g.file)
	must(t, s.ToDevice(b, false))
	if st := s.Stat(); st.ReadyBytes != 0 {
		t.Errorf("%+v", st)
	}
	must(t, s.ToHost(a, false, true))
	wantState(t, s, a, first)
}

func TestReadyMemoryMakesRoom(t *testing.T) {
	d := simulated(t, 16<<20)
	s := open(t, Options{MemoryBytes: 4 << 20, Device: d})
	a, b := Key{"a", 1, 0}, Key{"b", 1, 0}
	must(t, put(t, s, a, content{"w", "", text(1, 3<<20)}))
	for range 2 {
		must(t, s.ToDevice(a, false))
		must(t, s.ToHost(a, false, true))
	}
	must(t, s.ToDevice(a, false))
	if st := s.Stat(); st.ReadyBytes != 3<<20 {
		t.Errorf("%+v", st)
	}
	must(t, put(t, s, b, content{"w", "", text(2, 2<<20)}))
	if st := s.Stat(); st.ReadyBytes != 0 || st.MemoryBytes != 2<<20 {
		t.Errorf("%+v", st)
	}
	wantError(t, s.ToHost(a, false, true), ErrMemory)
	must(t, s.Drop(b))
	must(t, s.ToHost(a, false, true))
	wantState(t, s, a, content{"w", "", text(1, 3<<20)})
}

// Copies to and from the device beside everything else, with a race detector to watch.
func TestManyAtOnceWithADevice(t *testing.T) {
	t.Parallel()
	s, _ := withDevice(t, 32<<20)
	const size = readyBytesMin + 5
	for version := range uint64(3) {
		must(t, put(t, s, Key{"a", version, 0}, content{"w", "", text(int(version), size)}))
	}
	foreseen := []error{ErrNotFound, ErrExists, ErrOffloaded, ErrOnDevice}
	var wg sync.WaitGroup
	for worker := range 4 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(worker), 2))
			for range 30 {
				k, twin := Key{"a", r.Uint64N(3), 0}, Key{"twin", r.Uint64N(3), 0}
				var err error
				switch r.IntN(7) {
				case 0:
					err = s.ToDevice(k, r.IntN(2) == 0)
				case 1:
					err = s.ToHost(k, r.IntN(2) == 0, r.IntN(2) == 0)
				case 2:
					_, err = s.Offload(k)
				case 3:
					err = s.Restore(k)
				case 4:
					_, err = s.Copy(k, twin)
				case 5:
					err = s.Drop(twin)
				case 6:
					if _, err = look(t, s, k); err == nil {
						s.Stat()
					}
				}
				known := err == nil
				for _, fact := range foreseen {
					known = known || errors.Is(err, fact)
				}
				if !known {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	for version := range uint64(3) {
		k := Key{"a", version, 0}
		if i, err := s.Info(k); err != nil || i.OnDevice {
			must(t, errors.Join(err, s.ToHost(k, false, true)))
		}
		must(t, s.Restore(k))
		wantState(t, s, k, content{"w", "", text(int(version), size)})
		must(t, s.Drop(k))
		_ = s.Drop(Key{"twin", version, 0})
	}
	if st := s.Stat(); st.Corrupt > 0 || st.MemoryBytes+st.DiskBytes+st.DeviceBytes > 0 {
		t.Errorf("%+v", st)
	}
}
