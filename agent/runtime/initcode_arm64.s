#include "textflag.h"

// initCode is the whole first process of a cell: see initProgram. It is never called
// here; its bytes are copied into a program of their own, so it must not refer to
// anything outside itself.
TEXT ·initCode(SB), NOSPLIT|NOFRAME, $0-0
	SUB $64, RSP, RSP
	// mount("/", "/", 0, MS_REC|MS_SLAVE, 0): what is mounted here stays here.
	MOVD $0x2f, R9
	MOVD R9, 0(RSP)
	MOVD RSP, R0
	MOVD RSP, R1
	MOVD $0, R2
	MOVD $0x84000, R3
	MOVD $0, R4
	MOVD $40, R8
	SVC
	CBNZ R0, fail
	// mount("proc", "/proc", "proc", MS_NOSUID|MS_NODEV|MS_NOEXEC, 0)
	MOVZ $0x702f, R9
	MOVK $(0x6f72<<16), R9
	MOVK $(0x63<<32), R9
	MOVD R9, 0(RSP)
	MOVD RSP, R1
	ADD $1, R1, R0
	MOVD R0, R2
	MOVD $14, R3
	MOVD $0, R4
	MOVD $40, R8
	SVC
	CBNZ R0, fail
	// rt_sigaction(SIGCHLD, {SIG_IGN}, 0, 8): the kernel reaps orphans.
	MOVD $1, R9
	MOVD R9, 0(RSP)
	MOVD ZR, 8(RSP)
	MOVD ZR, 16(RSP)
	MOVD ZR, 24(RSP)
	MOVD $17, R0
	MOVD RSP, R1
	MOVD $0, R2
	MOVD $8, R3
	MOVD $134, R8
	SVC
	CBNZ R0, fail
	// write(1, "\x01", 1): ready. It fails if the supervisor died before this process
	// had asked to be killed with it.
	MOVD $1, R0
	MOVD RSP, R1
	MOVD $1, R2
	MOVD $64, R8
	SVC
	CMP $1, R0
	BNE fail
wait:
	MOVD $0, R0 // ppoll(0, 0, 0, 0)
	MOVD $0, R1
	MOVD $0, R2
	MOVD $0, R3
	MOVD $73, R8
	SVC
	B wait
fail:
	NEG R0, R0
	MOVD $94, R8 // exit_group
	SVC
	B fail

TEXT ·initCodeEnd(SB), NOSPLIT|NOFRAME, $0-0
	RET

// func initCodeBounds() (begin, end unsafe.Pointer)
TEXT ·initCodeBounds(SB), NOSPLIT, $0-16
	MOVD $·initCode(SB), R0
	MOVD R0, begin+0(FP)
	MOVD $·initCodeEnd(SB), R0
	MOVD R0, end+8(FP)
	RET
