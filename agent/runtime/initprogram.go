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

// launchCode is a program, see launchcode_*.s.
func launchCode() //nolint:unused // launchCodeBounds, in assembly, uses it

// launchCodeEnd follows it.
func launchCodeEnd() //nolint:unused // as launchCode

// launchCodeBounds returns where launchCode begins and ends.
func launchCodeBounds() (begin, end unsafe.Pointer)

// programAddress is where a program in memory is loaded.
const programAddress = 0x400000

// initProgram is the first process of a cell as a program in memory, a few hundred
// bytes long. It mounts /proc, says that it is ready, and waits to be killed. A
// PID namespace lives as long as its first process, which inherits all orphans; one
// of Go would take milliseconds and megabytes for each attempt.
//
// The descriptor is closed when a program is executed, and can be executed itself.
func initProgram() (fd int, err error) {
	begin, end := initCodeBounds()
	return programInMemory("rota-init", begin, end)
}

// launchProgram is the launcher as a program in memory. Its first argument is the path of a program, and
// the others are the arguments of that, which it executes. If it cannot, it writes the number of the
// error, 8 bytes, to descriptor 3, and ends. Otherwise that is closed.
func launchProgram() (fd int, err error) {
	begin, end := launchCodeBounds()
	return programInMemory("rota-launch", begin, end)
}

// programInMemory makes a file of a program. Nobody can change it, and only this user can open it to write,
// which would fail all executions meanwhile: attempts that execute it may open it.
func programInMemory(name string, begin, end unsafe.Pointer) (fd int, err error) {
	machine := elf.EM_X86_64
	if goruntime.GOARCH == "arm64" {
		machine = elf.EM_AARCH64
	}
	code := unsafe.Slice((*byte)(begin), uintptr(end)-uintptr(begin))
	head := elf.Header64{
		Ident: [elf.EI_NIDENT]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)},
		Type:  uint16(elf.ET_EXEC), Machine: uint16(machine), Version: uint32(elf.EV_CURRENT), Phnum: 1,
	}
	var load elf.Prog64
	headSize, loadSize := binary.Size(head), binary.Size(load)
	head.Ehsize, head.Phentsize, head.Phoff = uint16(headSize), uint16(loadSize), uint64(headSize)
	head.Entry = uint64(programAddress + headSize + loadSize)
	size := uint64(headSize + loadSize + len(code))
	load = elf.Prog64{Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_R | elf.PF_X),
		Vaddr: programAddress, Paddr: programAddress, Filesz: size, Memsz: size, Align: 0x10000}
	var file bytes.Buffer
	for _, part := range []any{&head, &load, code} {
		if err := binary.Write(&file, binary.LittleEndian, part); err != nil {
			return -1, err
		}
	}
	const flags = unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING
	if fd, err = unix.MemfdCreate(name, flags|unix.MFD_EXEC); err == unix.EINVAL {
		fd, err = unix.MemfdCreate(name, flags) // Linux before 6.3
	}
	if err != nil {
		return -1, fmt.Errorf("make the program %s: %w", name, err)
	}
	if _, err = unix.Write(fd, file.Bytes()); err == nil {
		err = unix.Fchmod(fd, 0o555)
	}
	if err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_WRITE|unix.F_SEAL_GROW|unix.F_SEAL_SHRINK|unix.F_SEAL_SEAL)
	}
	if err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("write the program %s: %w", name, err)
	}
	return fd, nil
}
