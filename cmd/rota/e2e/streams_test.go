package e2e

import (
	"context"
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"syscall"
	"testing"

	"google.golang.org/protobuf/proto"

	"rota/api/client"
	rotav1 "rota/api/gen/rota/v1"
	"rota/cmd/internal/devcluster"
)

// talk is an action that a test talks to.
type talk struct {
	*world
	id  uint64
	end chan *rotav1.Action

	mu     sync.Mutex
	output []byte
}

// talkTo submits an action and follows it.
func (w *world) talkTo(ctx context.Context, spec *rotav1.ActionSpec) *talk {
	w.Helper()
	ids, err := w.api.Submit(ctx, spec)
	if err != nil {
		w.Fatal(err)
	}
	t := &talk{world: w, id: ids[0], end: make(chan *rotav1.Action, 1)}
	go func() {
		a, err := w.api.Follow(ctx, t.id, func(u *rotav1.RunActionResponse) {
			t.mu.Lock()
			defer t.mu.Unlock()
			t.output = append(t.output, u.GetOutput().GetData()...)
		})
		if err != nil {
			w.Error(err)
		}
		t.end <- a
	}()
	return t
}

// says waits until the action has written a text.
func (t *talk) says(text string) {
	t.Helper()
	t.until(fmt.Sprintf("action %d says %q", t.id, text), func() bool {
		t.mu.Lock()
		defer t.mu.Unlock()
		return strings.Contains(string(t.output), text)
	})
}

func shellAction(text string) *rotav1.ActionSpec {
	return &rotav1.ActionSpec{Command: &rotav1.Command{Argv: []string{"sh", "-c", text}}}
}

// TestInputThroughACluster sends 64 MiB through servers, agent and supervisor to a command, while
// the agent is killed.
func TestInputThroughACluster(t *testing.T) {
	t.Parallel()
	w := newWorld(t, patient, devcluster.Config{Servers: 3, Agents: 1})
	ctx, cancel := context.WithTimeout(t.Context(), 8*patience)
	defer cancel()
	data := make([]byte, 64<<20)
	rand.NewChaCha8([32]byte{7}).Read(data)
	spec := shellAction("sha256sum")
	spec.Stdin = true
	talk := w.talkTo(ctx, spec)
	input := w.api.Input(talk.id)
	half := len(data)/2 + 13
	if err := input.Write(ctx, data[:half]); err != nil {
		t.Fatal(err)
	}
	agent := w.cluster.Agents[0]
	w.kill(agent)
	w.start(agent)
	if err := input.Write(ctx, data[half:]); err != nil {
		t.Fatal(err)
	}
	// A call that is repeated long after it was carried out.
	if _, err := w.api.Streams.WriteActionInput(ctx, &rotav1.WriteActionInputRequest{ActionId: talk.id, Writer: "other", Offset: proto.Uint64(0)}); err != nil {
		t.Error(err)
	}
	if err := input.Close(ctx); err != nil {
		t.Fatal(err)
	}
	if a := <-talk.end; a.GetState() != rotav1.ActionState_ACTION_STATE_SUCCEEDED {
		t.Fatalf("it ended: %v", a)
	}
	talk.says(fmt.Sprintf("%x", sha256.Sum256(data)))
	if err := input.Write(ctx, []byte("late")); client.Detail(err).GetReason() != "ATTEMPT_ENDED" {
		t.Errorf("after its end: %v", err)
	}
}

// TestTerminalThroughACluster has a command on a terminal, whose size changes, and which is
// interrupted.
func TestTerminalThroughACluster(t *testing.T) {
	t.Parallel()
	w := newWorld(t, patient, devcluster.Config{Servers: 1, Agents: 1})
	ctx, cancel := context.WithTimeout(t.Context(), 4*patience)
	defer cancel()
	spec := shellAction(`stty size; while read line; do echo "got $line"; stty size; done; echo end; while :; do sleep 0.05; done`)
	spec.Tty = &rotav1.TerminalSize{Rows: 24, Columns: 80}
	talk := w.talkTo(ctx, spec)
	talk.says("24 80\r\n")
	if err := w.api.ResizeTerminal(ctx, talk.id, &rotav1.TerminalSize{Rows: 50, Columns: 132}); err != nil {
		t.Fatal(err)
	}
	// Two who are attached at once.
	one, two := w.api.Input(talk.id), w.api.Input(talk.id)
	for name, input := range map[string]*client.Input{"one": one, "two": two} {
		if err := input.Write(ctx, []byte(name+"\n")); err != nil {
			t.Fatal(err)
		}
		talk.says("got " + name + "\r\n50 132\r\n")
	}
	if err := one.Close(ctx); err != nil {
		t.Fatal(err)
	}
	talk.says("end\r\n")
	if err := w.api.Signal(ctx, talk.id, "INT", false); err != nil {
		t.Fatal(err)
	}
	a := <-talk.end
	if a.GetResult().GetReason() != rotav1.EndReason_END_REASON_SIGNALED || a.GetResult().GetSignal() != int32(syscall.SIGINT) {
		t.Errorf("it ended: %v", a)
	}
}

// TestStreamsAreRefused is what callers are told that ask for what there is not.
func TestStreamsAreRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, patient, devcluster.Config{Servers: 1, Agents: 1})
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	deaf := w.talkTo(ctx, shellAction("echo up; sleep 1000"))
	deaf.says("up")
	queued := shellAction("true")
	queued.Resources, queued.Stdin = &rotav1.Resources{Cores: proto.Uint32(4)}, true
	waits := w.talkTo(ctx, queued)
	api, err := client.New(client.Config{Addrs: w.cluster.Addrs(), RetryFor: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer api.Close()
	for reason, err := range map[string]error{
		"NO_STREAM":         api.Input(deaf.id).Write(ctx, []byte("x")),
		"ACTION_QUEUED":     api.Input(waits.id).Write(ctx, []byte("x")),
		"ACTION_NOT_FOUND":  api.Signal(ctx, 1<<40, "INT", false),
		"INVALID":           api.Signal(ctx, deaf.id, "SEGV", false),
		"ATTEMPT_NOT_FOUND": second(api.Streams.SignalAction(ctx, &rotav1.SignalActionRequest{ActionId: deaf.id, Attempt: 2, Signal: "INT"})),
	} {
		if got := client.Detail(err).GetReason(); got != reason {
			t.Errorf("%s, want %s: %v", got, reason, err)
		}
	}
	if err := api.ResizeTerminal(ctx, deaf.id, &rotav1.TerminalSize{Rows: 1, Columns: 5000}); client.Detail(err).GetReason() != "INVALID" {
		t.Errorf("a terminal that is too large: %v", err)
	}
	if _, err := api.Cancel(ctx, deaf.id, waits.id); err != nil {
		t.Fatal(err)
	}
	<-deaf.end
	<-waits.end
}

func second[A any](_ A, err error) error { return err }
