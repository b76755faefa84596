#include "textflag.h"

// initCode is the whole first process of a cell: see initProgram. It is never called
// here; its bytes are copied into a program of their own, so it must not refer to
// anything outside itself.
TEXT ·initCode(SB), NOSPLIT|NOFRAME, $0-0
	// mount("/", "/", 0, MS_REC|MS_SLAVE, 0): what is mounted here stays here.
	MOVQ $0x2f, AX
	PUSHQ AX
	MOVQ SP, SI
	MOVQ SP, DI
	XORL DX, DX
	MOVL $0x84000, R10
	XORL R8, R8
	MOVL $165, AX
	SYSCALL
	TESTQ AX, AX
	JNE fail
	// mount("proc", "/proc", "proc", MS_NOSUID|MS_NODEV|MS_NOEXEC, 0)
	MOVQ $0x636f72702f, AX
	PUSHQ AX
	MOVQ SP, SI
	LEAQ 1(SI), DI
	MOVQ DI, DX
	MOVL $14, R10
	XORL R8, R8
	MOVL $165, AX
	SYSCALL
	TESTQ AX, AX
	JNE fail
	// rt_sigaction(SIGCHLD, {SIG_IGN}, 0, 8): the kernel reaps orphans.
	XORL AX, AX
	PUSHQ AX
	PUSHQ AX
	PUSHQ AX
	MOVL $1, AX
	PUSHQ AX
	MOVL $17, DI
	MOVQ SP, SI
	XORL DX, DX
	MOVL $8, R10
	MOVL $13, AX
	SYSCALL
	TESTQ AX, AX
	JNE fail
	// write(1, "\x01", 1): ready. It fails if the supervisor died before this process
	// had asked to be killed with it.
	MOVL $1, DI
	MOVQ SP, SI
	MOVL $1, DX
	MOVL $1, AX
	SYSCALL
	CMPQ AX, $1
	JNE fail
wait:
	MOVL $34, AX // pause
	SYSCALL
	JMP wait
fail:
	NEGQ AX
	MOVQ AX, DI
	MOVL $231, AX // exit_group
	SYSCALL
	JMP fail

TEXT ·initCodeEnd(SB), NOSPLIT|NOFRAME, $0-0
	RET

// func initCodeBounds() (begin, end unsafe.Pointer)
TEXT ·initCodeBounds(SB), NOSPLIT, $0-16
	LEAQ ·initCode(SB), AX
	MOVQ AX, begin+0(FP)
	LEAQ ·initCodeEnd(SB), AX
	MOVQ AX, end+8(FP)
	RET
