package tensor

import (
	"context"
	"encoding/binary"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// patience is longer than anything takes.
const patience = time.Minute

// serve serves a store and returns the address and what ends it.
func serve(t *testing.T, s *Store) (address string, stop func()) {
	t.Helper()
	address = "unix:" + filepath.Join(scratch(t), "s")
	l, err := Listen(address)
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- (&Server{Store: s}).Serve(ctx, l) }()
	stop = func() {
		cancel()
		if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		done <- nil
	}
	t.Cleanup(stop)
	return address, stop
}

func dial(t *testing.T, address string) *Client {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	c, err := Dial(ctx, address)
	must(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func (c *Client) must(t *testing.T, req request) answer {
	t.Helper()
	a, files, err := c.call(req)
	must(t, err)
	for _, f := range files {
		_ = f.Close()
	}
	return a
}

func TestDescriptorsArePassed(t *testing.T) {
	dir := scratch(t)
	s := open(t, roomy(filepath.Join(dir, "disk")))
	address, _ := serve(t, s)
	if st, err := os.Stat(address[len("unix:"):]); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", st.Mode(), err)
	}
	c := dial(t, address)
	k := Key{"a", 1, 0}
	a, files, err := c.call(request{Op: "create", Key: k, Tensors: []Tensor{content{"w", "x", text(1, 5000)}.tensor(), content{"b", "y", text(2, 9)}.tensor()}})
	must(t, err)
	if len(files) != 2 || len(a.Tensors) != 2 || a.Tensors[1].FD != 1 {
		t.Fatalf("%+v", a)
	}
	for i, f := range files {
		_, err := f.WriteAt(text(i+1, int(a.Tensors[i].Bytes)), int64(a.Tensors[i].At))
		must(t, errors.Join(err, f.Close()))
	}
	if got := c.must(t, request{Op: "commit", Key: k}); got.Info == nil || !got.Info.InMemory || got.Info.Bytes != 5009 {
		t.Errorf("%+v", got.Info)
	}
	wantState(t, s, k, content{"w", "", text(1, 5000)}, content{"b", "", text(2, 9)})
	_, files, err = c.call(request{Op: "open", Key: k})
	must(t, err)
	mem, err := unix.Mmap(int(files[0].Fd()), 0, 5000, unix.PROT_READ, unix.MAP_SHARED)
	must(t, err)
	if _, err := files[1].WriteAt([]byte("x"), 0); err == nil {
		t.Error("an opened state was written")
	}
	c.must(t, request{Op: "offload", Key: k})
	c.must(t, request{Op: "drop", Key: k})
	if string(mem) != string(text(1, 5000)) { // what is mapped stays
		t.Error("a mapping changed when its state was dropped")
	}
	must(t, unix.Munmap(mem))
	for _, f := range files {
		must(t, f.Close())
	}
}

func TestOperationsOfADevice(t *testing.T) {
	s, _ := withDevice(t, 1<<20)
	k := Key{"a", 1, 0}
	w := content{"w", "", text(1, 50)}
	must(t, put(t, s, k, w))
	address, _ := serve(t, s)
	c := dial(t, address)
	c.must(t, request{Op: "to_device", Key: k})
	if i, err := c.Info(k); err != nil || !i.OnDevice || i.InMemory {
		t.Errorf("%+v, %v", i, err)
	}
	_, _, err := c.call(request{Op: "open", Key: k})
	wantError(t, err, ErrOnDevice)
	_, _, err = c.call(request{Op: "open_device", Key: k})
	wantError(t, err, ErrNoHandle)
	_, _, err = c.call(request{Op: "close_device", Key: k})
	wantError(t, err, ErrNotFound)
	c.must(t, request{Op: "to_host", Key: k, Keep: true, Unverified: true})
	if i, err := c.Info(k); err != nil || !i.OnDevice || !i.InMemory {
		t.Errorf("%+v, %v", i, err)
	}
	c.must(t, request{Op: "to_host", Key: k})
	if st, err := c.Stat(); err != nil || st.Device != "simulated" || st.DeviceBytes != 0 || st.DeviceBytesMax != 1<<20 {
		t.Errorf("%+v, %v", st, err)
	}
	wantState(t, s, k, w)
}

func TestEveryOperationAndItsErrors(t *testing.T) {
	dir := scratch(t)
	s := open(t, roomy(filepath.Join(dir, "disk")))
	must(t, put(t, s, Key{"a", 1, 0}, content{"w", "", text(1, 50)}))
	address, _ := serve(t, s)
	c := dial(t, address)
	k, b, saved := Key{"a", 1, 0}, Key{"b", 1, 0}, filepath.Join(dir, "saved")
	c.must(t, request{Op: "checkpoint", Key: k, Dir: saved})
	c.must(t, request{Op: "copy", Key: k, To: b})
	if a := c.must(t, request{Op: "offload", Key: k}); a.Moved == nil || a.Moved.WrittenBytes != 50 {
		t.Errorf("%+v", a)
	}
	_, _, err := c.call(request{Op: "open", Key: k})
	wantError(t, err, ErrOffloaded)
	c.must(t, request{Op: "restore", Key: k})
	c.must(t, request{Op: "drop", Key: k})
	_, _, err = c.call(request{Op: "drop", Key: k})
	wantError(t, err, ErrNotFound)
	c.must(t, request{Op: "load", Key: k, Dir: saved})
	if a := c.must(t, request{Op: "read", Slice: &Slice{Deployment: "a", Version: 1, Name: "w", Offset: []uint64{7}, Shape: []uint64{9}}}); a.Tensors[0].Bytes != 9 {
		t.Errorf("%+v", a)
	}
	if list, err := c.List("b"); err != nil || len(list) != 1 || list[0].Key != b {
		t.Errorf("%+v, %v", list, err)
	}
	if i, err := c.Info(k); err != nil || len(i.Details) != 1 || i.Details[0].Name != "w" {
		t.Errorf("%+v, %v", i, err)
	}
	if st, err := c.Stat(); err != nil || st.States != 2 || st.MemoryBytes != 4096 {
		t.Errorf("%+v, %v", st, err)
	}
	for op, fact := range map[string]error{"fly": ErrInvalid, "read": ErrInvalid, "commit": ErrNotFound, "abort": ErrNotFound, "create": ErrInvalid} {
		_, _, err := c.call(request{Op: op, Key: Key{"z", 1, 0}})
		wantError(t, err, fact)
	}
	for _, e := range codes {
		wantError(t, encodeError(e.err).decode(), e.err)
	}
}

// until waits for something that another process or goroutine does.
func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for limit := time.Now().Add(patience); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatalf("waited for: %s", what)
		}
	}
}

func TestAWorkerThatDies(t *testing.T) {
	s := open(t, Options{MemoryBytes: 1 << 20})
	address, _ := serve(t, s)
	c := dial(t, address)
	create := request{Op: "create", Key: Key{"a", 1, 0}, Tensors: []Tensor{content{"w", "", text(1, 700_000)}.tensor()}}
	c.must(t, create)
	other := dial(t, address)
	_, _, err := other.call(create)
	wantError(t, err, ErrExists)
	create.Key.Version = 2
	_, _, err = other.call(create)
	wantError(t, err, ErrMemory)
	_, _, err = other.call(request{Op: "commit", Key: Key{"a", 1, 0}})
	wantError(t, err, ErrNotFound) // it is another worker's
	must(t, c.Close())
	until(t, "its memory", func() bool { return s.Stat().MemoryBytes == 0 })
	create.Key.Version = 1
	until(t, "its key", func() bool { _, _, err := other.call(create); return err == nil })
	other.must(t, request{Op: "abort", Key: create.Key})
	if n := s.Stat().MemoryBytes; n != 0 {
		t.Errorf("%d bytes of memory", n)
	}
}

func TestMessagesThatAreNone(t *testing.T) {
	s := open(t, Options{MemoryBytes: 1 << 20})
	address, stop := serve(t, s)
	for name, data := range map[string][]byte{
		"too long": binary.LittleEndian.AppendUint32(nil, messageBytesMax+1),
		"no JSON":  append(binary.LittleEndian.AppendUint32(nil, 3), "abc"...),
	} {
		c := dial(t, address)
		_, err := c.conn.Write(data)
		must(t, err)
		var a answer
		if err := readMessage(c.conn, &a); err != nil || a.Error == nil || a.Error.Code != "INVALID" {
			t.Errorf("%s: %+v, %v", name, a, err)
		}
		if err := readMessage(c.conn, &a); err == nil {
			t.Errorf("%s: the connection goes on", name)
		}
	}
	stop()
	if _, err := net.Dial("unix", address[len("unix:"):]); !errors.Is(err, fs.ErrNotExist) && err == nil {
		t.Error("the socket still answers")
	}
	_, err := Listen("127.0.0.1:0")
	wantError(t, err, ErrOptions)
}
