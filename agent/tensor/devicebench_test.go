package tensor

import (
	"fmt"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// BenchmarkDevice copies states of two sizes to a simulated device and back, and alternates
// with memcpy of as many bytes. "of-memcpy" is the time of memcpy by that of the move, and
// "cpu-of-memcpy" the CPU time of the move by that of memcpy: a second copy would double it.
func BenchmarkDevice(b *testing.B) {
	for _, size := range []int{64 << 20, 1 << 30} {
		name := fmt.Sprintf("%dMiB", size>>20)
		b.Run("to-device/"+name, func(b *testing.B) { benchDevice(b, size, true, false) })
		b.Run("to-host/"+name, func(b *testing.B) { benchDevice(b, size, false, false) })
		b.Run("to-host-verified/"+name, func(b *testing.B) { benchDevice(b, size, false, true) })
	}
}

// spent is time on the clock and of CPUs.
type spent struct{ wall, cpu time.Duration }

func (s *spent) add(b *testing.B, f func()) {
	cpu, from := cpuTime(b), time.Now()
	f()
	s.wall += time.Since(from)
	s.cpu += cpuTime(b) - cpu
}

func cpuTime(b *testing.B) time.Duration {
	var u unix.Rusage
	must(b, unix.Getrusage(unix.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func benchDevice(b *testing.B, size int, in, verify bool) {
	s := open(b, Options{MemoryBytes: uint64(2 * size), Device: simulated(b, uint64(size))})
	from, to := anonymous(b, size), anonymous(b, size)
	c, k := distinct(b, s, 0, size)
	_, err := c.Commit()
	must(b, err)
	must(b, s.ToDevice(k, false)) // from here on the agent has memory that only it has filled
	must(b, s.ToHost(k, false, false))
	must(b, s.ToDevice(k, false))
	var memcpy, other, move spent
	toDevice, toHost := &other, &move
	if in {
		toDevice, toHost = &move, &other
	}
	for range b.N {
		memcpy.add(b, func() { copy(to, from) })
		toHost.add(b, func() { must(b, s.ToHost(k, false, verify)) })
		toDevice.add(b, func() { must(b, s.ToDevice(k, false)) })
	}
	b.ReportMetric(float64(move.wall.Nanoseconds())/float64(b.N), "ns/op")
	b.ReportMetric(memcpy.wall.Seconds()/move.wall.Seconds(), "of-memcpy")
	b.ReportMetric(move.cpu.Seconds()/memcpy.cpu.Seconds(), "cpu-of-memcpy")
}
