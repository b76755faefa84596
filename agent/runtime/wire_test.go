package runtime

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	supervisorv1 "rota/api/gen/supervisor/v1"

	"rota/agent/plan"
)

// What crosses the socket is what was sent: every field, as rapid fills them.
func TestMessagesCarryEverything(t *testing.T) {
	duration := rapid.Custom(func(t *rapid.T) time.Duration { return time.Duration(rapid.Int64Min(0).Draw(t, "ns")) })
	key := rapid.Make[plan.Key]()
	rapid.Check(t, func(t *rapid.T) {
		spec := &Spec{
			Key: key.Draw(t, "key"), Argv: []string{rapid.String().Draw(t, "argv")}, Env: []string{rapid.String().Draw(t, "env")},
			Dir: rapid.String().Draw(t, "dir"), CPUs: rapid.SliceOf(rapid.IntRange(0, 4095)).Draw(t, "cpus"),
			Trajectory: rapid.Uint64().Draw(t, "trajectory"), MemoryBytes: rapid.Uint64().Draw(t, "memory"), Timeout: duration.Draw(t, "timeout"),
			HiddenDevices: rapid.SliceOf(rapid.Make[Device]()).Draw(t, "devices"),
			Stdin:         rapid.Bool().Draw(t, "stdin"), TTY: rapid.Ptr(rapid.Make[Terminal](), true).Draw(t, "tty"),
			Call: rapid.Bool().Draw(t, "call"),
		}
		if got := specOf(wireSpec(spec)); !reflect.DeepEqual(got, spec) {
			t.Fatalf("%+v became %+v", spec, got)
		}
		exit := plan.Exit{
			Key: spec.Key, Reason: plan.Reason(rapid.Uint8().Draw(t, "reason")), ExitCode: int(rapid.Int32().Draw(t, "code")),
			Signal: int(rapid.Int32().Draw(t, "signal")), Message: spec.Dir, Exec: duration.Draw(t, "exec"), CPU: spec.Timeout,
			MemoryPeak: spec.MemoryBytes, Stdout: []byte(spec.Argv[0]), Stderr: []byte(spec.Env[0]),
		}
		if got := exitOf(wireExit(exit)); !reflect.DeepEqual(got, exit) {
			t.Fatalf("%+v became %+v", exit, got)
		}
	})
}

func TestMessagesAreBounded(t *testing.T) {
	here, there := net.Pipe()
	defer there.Close()
	c := newClient(here, hclog.NewNullLogger())
	defer c.Close()
	if err := c.Start(t.Context(), Spec{Argv: []string{strings.Repeat("x", requestBytesMax)}}); !errors.Is(err, ErrInvalidSpec) {
		t.Errorf("a request that is too large: %v", err)
	}
	page := new(supervisorv1.AttachResponse)
	for range exitPage {
		page.Exits = append(page.Exits, wireExit(plan.Exit{Message: strings.Repeat("x", 1024), Stdout: make([]byte, tailBytes)}))
	}
	if size := proto.Size(page); size > requestBytesMax {
		t.Errorf("a page of the largest ends has %d bytes", size)
	}
}

// A supervisor of a release that spoke frames is recognised by its answer to one.
func TestASupervisorThatSpeaksFramesIsRefused(t *testing.T) {
	dir := t.TempDir()
	l, err := net.Listen("unix", filepath.Join(dir, socketName))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			var head [4]byte
			if _, err := io.ReadFull(conn, head[:]); err == nil && binary.BigEndian.Uint32(head[:]) < 1<<20 {
				answer := `{"op":"reply","error":{"code":"version","message":"supervisor 7 speaks version 1"}}`
				conn.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(answer))), answer...))
			}
			conn.Close()
		}
	}()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if _, err := Dial(ctx, Options{SuperviseOptions: SuperviseOptions{Dir: dir}}); !errors.Is(err, ErrVersion) || !strings.Contains(err.Error(), "older release") {
		t.Errorf("got %v", err)
	}
}

// An agent of a release that spoke frames is told why it cannot go on.
func TestAnAgentThatSpeaksFramesIsRefused(t *testing.T) {
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), socketName))
	if err != nil {
		t.Fatal(err)
	}
	server, err := newServer(new(supervisor))
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	go server.Serve(t.Context(), frameRefuser{l})
	conn, err := net.Dial("unix", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	hello := `{"id":1,"op":"hello","hello":{"version":1}}`
	if _, err := conn.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(hello))), hello...)); err != nil {
		t.Fatal(err)
	}
	answer, err := io.ReadAll(conn)
	if err != nil || len(answer) < 5 || !strings.Contains(string(answer[4:]), "newer release") {
		t.Errorf("answered %q, %v", answer, err)
	}
}
