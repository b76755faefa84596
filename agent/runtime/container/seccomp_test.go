package container

import (
	"math"
	"slices"
	"testing"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// allows says what the filter does with a call and its first argument.
func allows(f *specs.LinuxSeccomp, name string, arg uint64) bool {
	return slices.ContainsFunc(f.Syscalls, func(s specs.LinuxSyscall) bool {
		return slices.Contains(s.Names, name) && s.Action == specs.ActAllow &&
			!slices.ContainsFunc(s.Args, func(a specs.LinuxSeccompArg) bool {
				return a.Op != specs.OpMaskedEqual || a.Index != 0 || arg&a.Value != a.ValueTwo
			})
	})
}

// The kernel takes the lower 32 bits of these arguments, whatever is above.
func TestTheFilterLooksAtWhatTheKernelTakes(t *testing.T) {
	f := seccomp()
	for _, high := range []uint64{0, 1 << 32, math.MaxUint32 << 32} {
		for family := range uint64(64) {
			want := family < unix.AF_MAX && family != unix.AF_ALG && family != unix.AF_VSOCK
			if got := allows(f, "socket", high|family); got != want {
				t.Errorf("a socket of family %d with %#x is allowed: %v", family, high, got)
			}
		}
		for persona, want := range map[uint64]bool{0: true, 8: true, 0xffffffff: true, 0x0400000: false, 0x40000: false} {
			if got := allows(f, "personality", high|persona); got != want {
				t.Errorf("personality %#x with %#x is allowed: %v", persona, high, got)
			}
		}
	}
	if allows(f, "unshare", 0) || allows(f, "setns", 0) || !allows(f, "read", 0) {
		t.Error("the filter allows something else")
	}
}
