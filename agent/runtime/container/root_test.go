package container_test

import (
	"fmt"
	"strings"
	"testing"
)

// A root file system does not get more layers than can be mounted: the snapshot is refused, and the
// sandbox goes on.
func TestARootHasABoundedNumberOfLayers(t *testing.T) {
	n := newNode(t)
	n.m.SetLayersMax(4) // the image has one
	s := n.spec(7)
	for i := range 3 {
		run(t, n.open(s), fmt.Sprintf("echo %d >> /root/note", i))
		if root, err := n.m.Commit(t.Context(), 7, uint64(i+1)); root == "" || err != nil {
			t.Fatalf("snapshot %d: %q, %v", i+1, root, err)
		}
	}
	sb := n.open(s)
	run(t, sb, "echo 3 >> /root/note")
	if root, err := n.m.Commit(t.Context(), 7, 4); err == nil || !strings.Contains(err.Error(), "4 layers") {
		t.Errorf("one more snapshot: %q, %v", root, err)
	}
	if out, code := run(t, sb, "cat /root/note"); out != "0\n1\n2\n3" || code != 0 {
		t.Errorf("after that it has %q, with exit code %d", out, code)
	}
}
