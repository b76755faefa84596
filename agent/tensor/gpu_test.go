//go:build cuda

package tensor

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"rota/agent/tensor/device"
	"rota/internal/need"
)

// gpu opens the first GPU of the machine. A store that is open closes it.
func gpu(t testing.TB, bytes uint64) device.Device {
	t.Helper()
	need.GPU(t)
	d, _, err := device.Open(device.Spec{Kind: device.CUDA, Bytes: bytes})
	must(t, err)
	return d
}

// usedMiB is what is in use of the GPU, by anything.
func usedMiB(t testing.TB) int {
	t.Helper()
	out, err := exec.Command("nvidia-smi", "-i", "0", "--query-gpu=memory.used", "--format=csv,noheader,nounits").Output()
	must(t, err)
	n, err := strconv.Atoi(strings.TrimSpace(string(out)))
	must(t, err)
	return n
}

// TestGPUStates: states go to a GPU and back, verified, many times, beside each other.
func TestGPUStates(t *testing.T) {
	o := roomy(scratch(t))
	o.Device = gpu(t, 256<<20)
	s := open(t, o)
	contents := map[Key][]content{}
	for i := range 4 {
		k := Key{"a", uint64(i) + 1, 0}
		contents[k] = []content{{"shared", "s", text(0, BlockBytes+100)}, {"w", "w", text(i+1, 3*BlockBytes+5)}, {"b", "b", text(i+9, 5)}}
		must(t, put(t, s, k, contents[k]...))
	}
	done := make(chan error, len(contents))
	for k := range contents {
		go func() {
			for range 20 {
				for _, f := range []func() error{
					func() error { return s.ToDevice(k, false) },
					func() error { return s.ToHost(k, true, true) },
					func() error { return s.ToDevice(k, false) },
					func() error { _, err := s.Offload(k); return err },
					func() error { return s.Restore(k) },
				} {
					if err := f(); err != nil {
						done <- err
						return
					}
				}
			}
			done <- nil
		}()
	}
	for range contents {
		must(t, <-done)
	}
	for k, c := range contents {
		wantState(t, s, k, c...)
		must(t, s.Drop(k))
	}
	if st := s.Stat(); st.DeviceBytes != 0 || st.Corrupt != 0 {
		t.Errorf("%+v", st)
	}
	_, err := s.Create(Key{"a", 1, 0}, []Tensor{{Name: "w", DType: "uint8", Shape: []uint64{1 << 40}}})
	wantError(t, err, ErrMemory)
}

// worker is a Python process that has a state on the GPU open.
type worker struct {
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *bufio.Scanner
	seen map[string]json.RawMessage
}

func startWorker(t *testing.T, python, address string, k Key) *worker {
	t.Helper()
	library, err := filepath.Abs("../../api/python")
	must(t, err)
	w := &worker{cmd: exec.Command(python, "testdata/gpu_worker.py", address, k.Deployment, fmt.Sprint(k.Version))}
	w.cmd.Env = append(os.Environ(), "PYTHONPATH="+library)
	w.cmd.Stderr = t.Output()
	w.in, err = w.cmd.StdinPipe()
	must(t, err)
	out, err := w.cmd.StdoutPipe()
	must(t, err)
	must(t, w.cmd.Start())
	t.Cleanup(func() { _ = w.cmd.Process.Kill(); _ = w.cmd.Wait() })
	w.out = bufio.NewScanner(out)
	w.seen = w.hear(t)
	return w
}

func (w *worker) hear(t *testing.T) (said map[string]json.RawMessage) {
	t.Helper()
	if !w.out.Scan() {
		t.Fatalf("the worker said nothing: %v", w.cmd.Wait())
	}
	must(t, json.Unmarshal(w.out.Bytes(), &said))
	return said
}

// TestGPUMemoryIsPassedToTorch: a Python worker maps a state as torch tensors without a copy and
// sees its bytes. The memory stays while the worker has it, and goes when the worker closes it or
// is killed.
func TestGPUMemoryIsPassedToTorch(t *testing.T) {
	python := need.Torch(t)
	o := roomy(scratch(t))
	o.Device = gpu(t, 256<<20)
	s := open(t, o)
	k := Key{"actor", 3, 0}
	dtypes := []string{"float32", "bfloat16", "float16", "float8_e4m3", "float8_e5m2", "int64", "uint16", "uint32", "uint64", "bool", "uint8"}
	var specs []Tensor
	var contents []content
	for i, dtype := range dtypes {
		data := text(i, 48*(1000+i))
		if dtype == "bool" {
			for j := range data {
				data[j] &= 1
			}
		}
		specs = append(specs, Tensor{Name: dtype, DType: dtype, Shape: []uint64{2, 1}, Group: fmt.Sprint(i / 2)})
		specs[i].Shape[1] = uint64(len(data)) / 2 / sizeOf(dtype)
		contents = append(contents, content{dtype, fmt.Sprint(i / 2), data})
	}
	putTyped(t, s, k, specs, contents)
	must(t, s.ToDevice(k, false))
	address, _ := serve(t, s)
	w := startWorker(t, python, address, k)
	for i, c := range contents {
		var saw struct {
			SHA256, DType string
			InPlace       bool `json:"in_place"`
			Shape         []uint64
		}
		must(t, json.Unmarshal(w.seen[c.name], &saw))
		want := sha256.Sum256(c.data)
		if saw.SHA256 != hex.EncodeToString(want[:]) || !saw.InPlace || !strings.Contains(saw.DType, c.name) || saw.Shape[1] != specs[i].Shape[1] {
			t.Errorf("%s: %+v", c.name, saw)
		}
	}
	var sum int
	for _, b := range contents[0].data {
		sum += int(b)
	}
	if got := string(w.seen["total"]); got != fmt.Sprint(sum) {
		t.Errorf("the sum is %s, want %d", got, sum)
	}
	if got := string(w.seen["closed_in_use"]); got != "false" {
		t.Error("the state was closed under a tensor")
	}
	second := startWorker(t, python, address, k)
	must(t, s.Drop(k))
	if s.Stat().DeviceBytes == 0 {
		t.Error("memory was freed that workers have open")
	}
	_, err := io.WriteString(w.in, "close\n")
	must(t, err)
	w.hear(t)
	if s.Stat().DeviceBytes == 0 {
		t.Error("memory was freed that the other worker has open")
	}
	must(t, second.cmd.Process.Kill())
	until(t, "the memory of a worker that was killed", func() bool { return s.Stat().DeviceBytes == 0 })
	must(t, put(t, s, k, content{"w", "w", text(1, 5)})) // and all goes on
	must(t, s.ToDevice(k, false))
	must(t, s.ToHost(k, false, true))
}

func sizeOf(dtype string) uint64 { return dtypes[dtype] }

// putTyped is put with tensors of any type.
func putTyped(t *testing.T, s *Store, k Key, specs []Tensor, contents []content) {
	t.Helper()
	c, err := s.Create(k, specs)
	must(t, err)
	for i, x := range c.state.tensors {
		_, err := c.segments[x.group].file.WriteAt(contents[i].data, int64(x.at))
		must(t, err)
	}
	_, err = c.Commit()
	must(t, err)
}

// gpuContents are those of the state that an agent moves until it is killed: large enough that a
// kill comes in the middle of a move.
func gpuContents() []content {
	data := bytes.Repeat(text(3, BlockBytes-11), 64)
	return []content{{"w", "w", data}, {"b", "b", text(4, 77)}}
}

var gpuOptions = Options{MemoryBytes: 2 << 30, DiskBytes: 1 << 30}

// moveOnGPU moves a state that is on disk between GPU and host, and says so, until it is killed.
func moveOnGPU(dir string, out io.Writer) error {
	d, _, err := device.Open(device.Spec{Kind: device.CUDA, Bytes: 1 << 30})
	if err != nil {
		return err
	}
	o := gpuOptions
	o.Dir, o.Device = filepath.Join(dir, "disk"), d
	s, err := Open(o)
	if err != nil {
		return err
	}
	k := Key{"a", 1, 0}
	if err := put(&testing.B{}, s, k, gpuContents()...); err != nil {
		return err
	}
	if _, err := s.Offload(k); err != nil {
		return err
	}
	if err := s.Restore(k); err != nil {
		return err
	}
	for i := 0; ; i++ {
		fmt.Fprintln(out, "to-device", i)
		if err := s.ToDevice(k, false); err != nil {
			return err
		}
		fmt.Fprintln(out, "to-host", i)
		if err := s.ToHost(k, false, i%2 == 0); err != nil {
			return err
		}
	}
}

func init() { storyOnGPU = moveOnGPU }

// TestGPUMemoryOfAnAgentThatIsKilled in the middle of a move is free soon, and the state on disk is
// whole.
func TestGPUMemoryOfAnAgentThatIsKilled(t *testing.T) {
	need.GPU(t)
	before := usedMiB(t)
	for lines := 1; lines <= 8; lines++ {
		dir := scratch(t)
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0", dirEnv+"="+dir, gpuEnv+"=1")
		out, err := cmd.StdoutPipe()
		must(t, err)
		must(t, cmd.Start())
		scan := bufio.NewScanner(out)
		for n := 0; n < lines; n++ {
			if !scan.Scan() {
				t.Fatalf("the process ended by itself: %v", cmd.Wait())
			}
			if !strings.HasPrefix(scan.Text(), "to-") {
				t.Fatal(scan.Text())
			}
		}
		time.Sleep(time.Duration(lines) * 500 * time.Microsecond) // anywhere in the move
		held := usedMiB(t)
		must(t, cmd.Process.Kill())
		_ = cmd.Wait()
		until(t, "the memory of the GPU", func() bool { return usedMiB(t) <= before+16 })
		t.Logf("killed after %q: %d MiB in use before, %d MiB with the agent", scan.Text(), before, held)
		o := gpuOptions
		o.Dir = filepath.Join(dir, "disk")
		s := open(t, o)
		must(t, s.Restore(Key{"a", 1, 0}))
		wantState(t, s, Key{"a", 1, 0}, gpuContents()...)
		must(t, s.Close())
	}
}

// BenchmarkGPU copies states of three sizes to the GPU and back, and alternates with one plain
// cuMemcpy of as many bytes from and to memory that was pinned before. "of-plain" is the time of the
// plain copies by that of the moves. "first" is a state that a worker has just committed, with the
// time of the commit beside it.
func BenchmarkGPU(b *testing.B) {
	for _, size := range []int{64 << 20, 1 << 30, 8 << 30} {
		name := fmt.Sprintf("%dMiB", size>>20)
		b.Run("to-gpu/"+name, func(b *testing.B) { benchGPU(b, size, func(m *moves) *spent { return &m.in }, false) })
		b.Run("to-host/"+name, func(b *testing.B) { benchGPU(b, size, func(m *moves) *spent { return &m.out }, false) })
		b.Run("to-host-verified/"+name, func(b *testing.B) { benchGPU(b, size, func(m *moves) *spent { return &m.out }, true) })
		b.Run("to-gpu-first/"+name, func(b *testing.B) { benchGPUFirst(b, size) })
	}
}

// moves are the times of copies in both directions.
type moves struct{ in, out spent }

// plainGPU is memory of host and GPU that is copied by one call of the driver.
type plainGPU struct {
	b      *testing.B
	host   []byte
	memory device.Memory
	moves
}

func newPlainGPU(b *testing.B, d device.Device, size int) *plainGPU {
	p := &plainGPU{b: b, host: anonymous(b, size)}
	var err error
	p.memory, err = d.Allocate(uint64(size))
	must(b, err)
	unpin, err := d.Pin(p.host)
	must(b, err)
	b.Cleanup(func() { unpin(); _ = p.memory.Free() })
	p.pass()
	p.moves = moves{}
	return p
}

func (p *plainGPU) pass() {
	p.in.add(p.b, func() { must(p.b, p.memory.CopyIn(0, p.host)) })
	p.out.add(p.b, func() { must(p.b, p.memory.CopyOut(p.host, 0)) })
}

func reportGPU(b *testing.B, size int, move, plain *spent) {
	rate := func(s *spent) float64 { return float64(size) * float64(b.N) / s.wall.Seconds() / 1e9 }
	b.ReportMetric(float64(move.wall.Nanoseconds())/float64(b.N), "ns/op")
	b.ReportMetric(rate(move), "GB/s")
	b.ReportMetric(rate(plain), "plain-GB/s")
	b.ReportMetric(plain.wall.Seconds()/move.wall.Seconds(), "of-plain")
	b.ReportMetric(float64(move.cpu.Nanoseconds())/float64(b.N), "cpu-ns/op")
	b.ReportMetric(float64(plain.cpu.Nanoseconds())/float64(b.N), "plain-cpu-ns/op")
}

func benchGPU(b *testing.B, size int, which func(*moves) *spent, verify bool) {
	d := gpu(b, uint64(2*size+64<<20))
	s := open(b, Options{MemoryBytes: uint64(2 * size), Device: d})
	p := newPlainGPU(b, d, size)
	c, k := distinct(b, s, 0, size)
	_, err := c.Commit()
	must(b, err)
	must(b, s.ToDevice(k, false)) // from here on the agent has memory that only it has filled
	must(b, s.ToHost(k, false, false))
	must(b, s.ToDevice(k, false))
	runtime.GC()
	p.moves = moves{}
	var m moves
	for range b.N {
		p.pass()
		m.out.add(b, func() { must(b, s.ToHost(k, false, verify)) })
		m.in.add(b, func() { must(b, s.ToDevice(k, false)) })
	}
	reportGPU(b, size, which(&m), which(&p.moves))
}

func benchGPUFirst(b *testing.B, size int) {
	d := gpu(b, uint64(2*size+64<<20))
	s := open(b, Options{MemoryBytes: uint64(2 * size), Device: d})
	p := newPlainGPU(b, d, size)
	var move, commit spent
	for i := range b.N {
		c, k := distinct(b, s, uint64(i), size)
		commit.add(b, func() { _, err := c.Commit(); must(b, err) })
		p.pass()
		move.add(b, func() { must(b, s.ToDevice(k, false)) })
		must(b, s.Drop(k))
	}
	reportGPU(b, size, &move, &p.in)
	b.ReportMetric(float64(commit.wall.Nanoseconds())/float64(b.N), "commit-ns/op")
}
