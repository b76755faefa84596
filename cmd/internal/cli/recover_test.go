package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The server of a folder must be able to read what is recovered. As root, the command would
// leave files of root in the folder of the user rota.
func TestFoldersOfOtherUsersAreNotRecovered(t *testing.T) {
	dir := t.TempDir()
	if err := checkOwner(dir, os.Geteuid()); err != nil {
		t.Error(err)
	}
	err := checkOwner(dir, os.Geteuid()+4242)
	if err == nil || !strings.Contains(err.Error(), "sudo -u '"+userName(os.Geteuid())+"' rota operator recover") {
		t.Errorf("a folder of another user: %v", err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("%v, %v is in the folder", err, left)
	}
	if os.Geteuid() != 0 {
		return // only root can give a folder away
	}
	if err := os.Chown(dir, 4242, 4242); err != nil {
		t.Fatal(err)
	}
	var out, errOut strings.Builder
	code := run(t.Context(), []string{"operator", "recover", "--data", dir, "--voters", "s1=10.0.0.1:7400", "--yes"}, &out, &errOut)
	if code != exitError || !strings.Contains(errOut.String(), "belongs to user #4242") {
		t.Errorf("exit code %d: %s", code, errOut.String())
	}
	if code = run(t.Context(), []string{"operator", "recover", "--data", filepath.Join(dir, "gone"), "--voters", "s1=10.0.0.1:7400"}, &out, &errOut); code != exitError {
		t.Errorf("exit code %d for a folder that does not exist", code)
	}
}
