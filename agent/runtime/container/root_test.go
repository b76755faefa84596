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
		root := n.m.NewRoot(uint64(i + 1))
		if committed, err := n.m.Commit(t.Context(), 7, root); !committed || err != nil {
			t.Fatalf("snapshot %d: %v, %v", i+1, committed, err)
		}
		if bytes, err := n.m.RootBytes(t.Context(), root); bytes == 0 || err != nil {
			t.Errorf("snapshot %d has %d bytes, %v", i+1, bytes, err)
		}
	}
	sb := n.open(s)
	run(t, sb, "echo 3 >> /root/note")
	if committed, err := n.m.Commit(t.Context(), 7, n.m.NewRoot(4)); err == nil || !strings.Contains(err.Error(), "4 layers") {
		t.Errorf("one more snapshot: %v, %v", committed, err)
	}
	if out, code := run(t, sb, "cat /root/note"); out != "0\n1\n2\n3" || code != 0 {
		t.Errorf("after that it has %q, with exit code %d", out, code)
	}
}
