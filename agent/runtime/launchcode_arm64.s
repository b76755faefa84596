#include "textflag.h"

// launchCode is the whole program of launchProgram. As initCode, it is never called here.
TEXT ·launchCode(SB), NOSPLIT|NOFRAME, $0-0
	MOVD RSP, R19 // the number of arguments, the arguments, 0, the environment
	// fcntl(3, F_SETFD, FD_CLOEXEC)
	MOVD $3, R0
	MOVD $2, R1
	MOVD $1, R2
	MOVD $25, R8
	SVC
	// execve(arguments[0], arguments+1, environment)
	MOVD 0(R19), R3
	MOVD 8(R19), R0
	ADD $16, R19, R1
	ADD R3<<3, R1, R2
	MOVD $221, R8
	SVC
	// write(3, &error, 8)
	NEG R0, R0
	MOVD R0, 0(R19)
	MOVD $3, R0
	MOVD R19, R1
	MOVD $8, R2
	MOVD $64, R8
	SVC
fail:
	MOVD $127, R0
	MOVD $94, R8 // exit_group
	SVC
	B fail

TEXT ·launchCodeEnd(SB), NOSPLIT|NOFRAME, $0-0
	RET

// func launchCodeBounds() (begin, end unsafe.Pointer)
TEXT ·launchCodeBounds(SB), NOSPLIT, $0-16
	MOVD $·launchCode(SB), R0
	MOVD R0, begin+0(FP)
	MOVD $·launchCodeEnd(SB), R0
	MOVD R0, end+8(FP)
	RET
