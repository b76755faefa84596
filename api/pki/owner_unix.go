//go:build unix

package pki

import (
	"io/fs"
	"syscall"
)

// tellsOwner: modes of files mean what they say.
const tellsOwner = true

func ownedByRoot(info fs.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && st.Uid == 0
}
