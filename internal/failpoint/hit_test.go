//go:build !faults

package failpoint

import "testing"

func TestThisBuildHasNoFailpoints(t *testing.T) {
	dir := t.TempDir()
	t.Setenv(Env, dir)
	if err := Arm(dir, LogAppended, "kill"); err != nil {
		t.Fatal(err)
	}
	Hit(LogAppended)
	if Acted(dir, LogAppended) {
		t.Error("acted")
	}
}
