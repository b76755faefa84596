package tier

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// BenchmarkDisk reads and writes values through the disk tier, and beside it as many bytes
// with plain direct I/O: the same file system, one request for each value, as many at once.
// Values are read that are not in memory, and written until they are on disk.
func BenchmarkDisk(b *testing.B) {
	const total = 512 << 20
	for _, size := range []int{256 << 10, 4 << 20, 64 << 20} {
		dir := b.TempDir()
		s := open(b, Options{MemoryBytes: 1 << 30, Dir: dir, DiskBytes: 8 << 30, BootID: "boot"})
		if !s.Stat().Direct {
			b.Skip("the file system refuses direct I/O; set TMPDIR to a folder of another")
		}
		n := total / size
		keys := make([]string, n)
		for i := range keys {
			keys[i] = fmt.Sprint(i)
			fillAndSet(b, s, keys[i], i, size)
		}
		forgetMemory(b, s)
		plain := newPlain(b, dir, size, n)
		name := fmt.Sprintf("%dKiB", size>>10)
		b.Run("read/"+name+"/plain", func(b *testing.B) { plain.each(b, plain.read) })
		b.Run("read/"+name+"/tier", func(b *testing.B) {
			plain.each(b, func(b *testing.B, i int) {
				v := s.Get(keys[i])
				if v == nil {
					b.Error("a value is gone")
					return
				}
				v.Release()
				s.mu.Lock()
				s.dropMemory(s.index.byKey[keys[i]].block)
				s.mu.Unlock()
			})
			if s.Stat().MemoryHits > 0 {
				b.Error("values came from memory")
			}
		})
		b.Run("write/"+name+"/plain", func(b *testing.B) { plain.each(b, plain.write) })
		b.Run("write/"+name+"/tier", func(b *testing.B) {
			plain.each(b, func(b *testing.B, i int) { fillAndSet(b, s, keys[i], i, size) })
			must(b, s.Flush(context.Background())) // in the time, too
		})
		must(b, s.Close())
		plain.close()
	}
}

// fillAndSet sets a value that only this number has, without the price of random bytes.
func fillAndSet(b *testing.B, s *Store, key string, number, size int) {
	v, err := s.NewValue(uint64(size))
	must(b, err)
	copy(v.Bytes(), fmt.Sprint(number, time.Now().UnixNano()))
	_, err = s.Set(key, v, time.Time{}, Always)
	must(b, err)
}

// plain is a file with the same bytes, and memory for as many requests as are in flight.
type plain struct {
	file    *os.File
	size, n int
	buffers chan *Value
	arena   *arena
}

const plainInFlight = 8

func newPlain(b *testing.B, dir string, size, n int) *plain {
	f, err := os.OpenFile(filepath.Join(dir, "plain"), os.O_RDWR|os.O_CREATE|unix.O_DIRECT, 0o600)
	must(b, err)
	p := &plain{file: f, size: size, n: n, buffers: make(chan *Value, plainInFlight)}
	p.arena, err = newArena(plainInFlight * size)
	must(b, err)
	for range plainInFlight {
		p.buffers <- p.arena.value(size)
	}
	for i := range n {
		p.write(b, i)
	}
	return p
}

// each calls f for values in turn, plainInFlight at once.
func (p *plain) each(b *testing.B, f func(b *testing.B, i int)) {
	b.SetBytes(int64(p.size))
	b.SetParallelism(max(1, plainInFlight/runtime.GOMAXPROCS(0)))
	var next atomic.Int64
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			f(b, int(next.Add(1))%p.n)
		}
	})
}

func (p *plain) read(b *testing.B, i int) {
	v := <-p.buffers
	defer func() { p.buffers <- v }()
	if _, err := p.file.ReadAt(v.Bytes(), int64(i)*int64(p.size)); err != nil {
		b.Error(err)
	}
}

func (p *plain) write(b *testing.B, i int) {
	v := <-p.buffers
	defer func() { p.buffers <- v }()
	if _, err := p.file.WriteAt(v.Bytes(), int64(i)*int64(p.size)); err != nil {
		b.Error(err)
	}
}

func (p *plain) close() {
	for range plainInFlight {
		(<-p.buffers).Release()
	}
	p.arena.close()
	_ = p.file.Close()
}
