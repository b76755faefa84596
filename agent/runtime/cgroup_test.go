package runtime

import (
	"fmt"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"rota/internal/need"
)

// TestABaseIsMadeWhileOthersEnd: the last supervisor of a parent takes it away, and
// another that starts meanwhile must not go without a cgroup for it.
func TestABaseIsMadeWhileOthersEnd(t *testing.T) {
	need.Cgroup(t)
	const parent = "rota-come-and-go"
	var supervisors sync.WaitGroup
	for s := range 2 {
		supervisors.Go(func() {
			for range 300 {
				mounts, err := findHierarchies()
				if err != nil {
					t.Error(err)
					return
				}
				for _, h := range mounts {
					if !wanted(h, "", true) {
						continue
					}
					if err := h.setup(parent, fmt.Sprint("s", s)); err != nil {
						t.Error(err)
						return
					}
					_ = syscall.Rmdir(h.base)
					_ = syscall.Rmdir(filepath.Join(h.mount, parent)) // the other may be in it
				}
			}
		})
	}
	supervisors.Wait()
}
