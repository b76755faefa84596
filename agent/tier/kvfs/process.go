package kvfs

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/hanwen/go-fuse/v2/fuse"
)

// callerOf is the thread that a request comes from, as /proc knows it; 0 if it is in a PID namespace
// that this process does not see.
func callerOf(ctx context.Context) uint32 {
	caller, ok := fuse.FromContext(ctx)
	if !ok {
		return 0
	}
	return caller.Pid
}

// sameProcess says whether two threads belong to one process. If one has ended or is not known, they
// may.
func sameProcess(opener, caller uint32) bool {
	if opener == 0 || caller == 0 || opener == caller {
		return true
	}
	if _, err := os.Stat(fmt.Sprintf("/proc/%d", opener)); err != nil {
		return true
	}
	_, err := os.Stat(fmt.Sprintf("/proc/%d/task/%d", opener, caller))
	return err == nil
}

// wasKilled says whether a thread is ending because a signal has killed its process.
func wasKilled(thread uint32) bool {
	if thread == 0 {
		return false
	}
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", thread))
	return err == nil && killedBySignal(string(b))
}

// killedBySignal reads /proc/PID/stat: of a thread that is ending, the field exit_code has the
// signal, as wait(2) gives it.
func killedBySignal(stat string) bool {
	const (
		afterName            = 2 // fields before the first that follows the name
		flagsField, codeWord = 9 - afterName - 1, 52 - afterName - 1
		exiting              = 0x4 // PF_EXITING
	)
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	if len(fields) <= codeWord {
		return false
	}
	flags, err := strconv.ParseUint(fields[flagsField], 10, 64)
	code, codeErr := strconv.ParseUint(fields[codeWord], 10, 64)
	return err == nil && codeErr == nil && flags&exiting != 0 && code&0x7f != 0
}
