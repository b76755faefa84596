package container_test

import (
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"rota/agent/runtime/container/containertest"
	"rota/agent/runtime/container/initcall"
)

// A sandbox that was opened ahead is that of the first action, whether it was open already or not yet.
func TestAnActionGetsTheSandboxThatWasOpenedAhead(t *testing.T) {
	n := newNode(t)
	s := n.spec(7)
	if err := n.m.OpenAhead(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	recorded := func() time.Time {
		st, err := os.Stat(filepath.Join(n.opts.Dir, "7", "sandbox.json"))
		if err != nil {
			t.Fatal(err)
		}
		return st.ModTime()
	}
	before := recorded()
	sb := n.open(s)
	if out, code := run(t, sb, "pwd"); out != "/work" || code != 0 || !recorded().Equal(before) {
		t.Errorf("it was opened again, says %q and exits with %d", out, code)
	}
	other := n.spec(8)
	var all sync.WaitGroup
	all.Go(func() {
		if err := n.m.OpenAhead(t.Context(), other); err != nil {
			t.Error(err)
		}
	})
	for range 3 {
		all.Go(func() {
			if sb, err := n.m.Open(t.Context(), other); err != nil || !initcall.Listening(sb.SocketDir) {
				t.Errorf("meanwhile: %v", err)
			}
		})
	}
	all.Wait()
	if ids, err := n.opts.Containerd.Sandboxes(t.Context()); err != nil || len(ids) != 2 {
		t.Errorf("the sandboxes are %v: %v", ids, err)
	}
}

// One that was open and has ended is left to the next action, also by the next agent: nobody waits for it.
func TestASandboxThatHasEndedIsNotOpenedAhead(t *testing.T) {
	n := newNode(t)
	s := n.spec(7)
	sb := n.open(s)
	conn, err := initcall.Dial(sb.SocketDir)
	if err != nil {
		t.Fatal(err)
	}
	killPeer(t, conn)
	_ = conn.Close()
	containertest.Wait(t, "its first process is gone", func() bool { return initcall.Gone(sb.SocketDir) })
	n.restart()
	if err := n.m.OpenAhead(t.Context(), s); err != nil || !initcall.Gone(sb.SocketDir) {
		t.Errorf("it was started again: %v", err)
	}
	if !initcall.Listening(n.open(s).SocketDir) {
		t.Error("the action has no sandbox")
	}
}
