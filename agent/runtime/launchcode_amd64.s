#include "textflag.h"

// launchCode is the whole program of launchProgram. As initCode, it is never called here.
TEXT ·launchCode(SB), NOSPLIT|NOFRAME, $0-0
	MOVQ SP, BX // the number of arguments, the arguments, 0, the environment
	// fcntl(3, F_SETFD, FD_CLOEXEC)
	MOVL $3, DI
	MOVL $2, SI
	MOVL $1, DX
	MOVL $72, AX
	SYSCALL
	// execve(arguments[0], arguments+1, environment)
	MOVQ 0(BX), CX
	MOVQ 8(BX), DI
	LEAQ 16(BX), SI
	LEAQ 16(BX)(CX*8), DX
	MOVL $59, AX
	SYSCALL
	// write(3, &error, 8)
	NEGQ AX
	MOVQ AX, 0(BX)
	MOVL $3, DI
	MOVQ BX, SI
	MOVL $8, DX
	MOVL $1, AX
	SYSCALL
fail:
	MOVL $127, DI
	MOVL $231, AX // exit_group
	SYSCALL
	JMP fail

TEXT ·launchCodeEnd(SB), NOSPLIT|NOFRAME, $0-0
	RET

// func launchCodeBounds() (begin, end unsafe.Pointer)
TEXT ·launchCodeBounds(SB), NOSPLIT, $0-16
	LEAQ ·launchCode(SB), AX
	MOVQ AX, begin+0(FP)
	LEAQ ·launchCodeEnd(SB), AX
	MOVQ AX, end+8(FP)
	RET
