//go:build amd64 || arm64

package runtime

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	goruntime "runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// initCode is a program, see initcode_*.s.
func initCode() //nolint:unused // initCodeBounds, in assembly, uses it

// initCodeEnd follows it.
func initCodeEnd() //nolint:unused // as initCode

// initCodeBounds returns where initCode begins and ends.
func initCodeBounds() (begin, end unsafe.Pointer)

// initAddress is where the program is loaded.
const initAddress = 0x400000

// initProgram is the first process of a cell as a program in memory, a few hundred
// bytes long. It mounts /proc, says that it is ready, and waits to be killed. A
// PID namespace lives as long as its first process, which inherits all orphans; one
// of Go would take milliseconds and megabytes for each attempt.
//
// The descriptor is closed when a program is executed, and can be executed itself.
func initProgram() (fd int, err error) {
	machine := elf.EM_X86_64
	if goruntime.GOARCH == "arm64" {
		machine = elf.EM_AARCH64
	}
	begin, end := initCodeBounds()
	code := unsafe.Slice((*byte)(begin), uintptr(end)-uintptr(begin))
	head := elf.Header64{
		Ident: [elf.EI_NIDENT]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)},
		Type:  uint16(elf.ET_EXEC), Machine: uint16(machine), Version: uint32(elf.EV_CURRENT), Phnum: 1,
	}
	var load elf.Prog64
	headSize, loadSize := binary.Size(head), binary.Size(load)
	head.Ehsize, head.Phentsize, head.Phoff = uint16(headSize), uint16(loadSize), uint64(headSize)
	head.Entry = uint64(initAddress + headSize + loadSize)
	size := uint64(headSize + loadSize + len(code))
	load = elf.Prog64{Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_R | elf.PF_X),
		Vaddr: initAddress, Paddr: initAddress, Filesz: size, Memsz: size, Align: 0x10000}
	var file bytes.Buffer
	for _, part := range []any{&head, &load, code} {
		if err := binary.Write(&file, binary.LittleEndian, part); err != nil {
			return -1, err
		}
	}
	if fd, err = unix.MemfdCreate("rota-init", unix.MFD_CLOEXEC|unix.MFD_EXEC); err == unix.EINVAL {
		fd, err = unix.MemfdCreate("rota-init", unix.MFD_CLOEXEC) // Linux before 6.3
	}
	if err != nil {
		return -1, fmt.Errorf("make the first process of namespaces: %w", err)
	}
	if _, err := unix.Write(fd, file.Bytes()); err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("write the first process of namespaces: %w", err)
	}
	return fd, nil
}
