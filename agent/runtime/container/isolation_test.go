package container_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"rota/agent/runtime/container"
	"rota/agent/runtime/container/initcall"
)

// killPeer kills the process that listens at the other side.
func killPeer(t *testing.T, conn *net.UnixConn) {
	t.Helper()
	if err := syscall.Kill(peerOf(t, conn), syscall.SIGKILL); err != nil {
		t.Error(err)
	}
}

// peerOf is the process at the other end.
func peerOf(t testing.TB, conn *net.UnixConn) (pid int) {
	t.Helper()
	raw, err := conn.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	err = raw.Control(func(fd uintptr) {
		peer, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
		if err != nil {
			t.Error(err)
			return
		}
		pid = int(peer.Pid)
	})
	if err != nil || pid == 0 {
		t.Fatal(err)
	}
	return pid
}

// buildProbe puts the probe into the workspace of a sandbox.
func buildProbe(t *testing.T, s container.Spec) {
	t.Helper()
	cmd := exec.Command("go", "build", "-o", filepath.Join(s.Home, "probe"), "./testdata/probe")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build the probe: %v\n%s", err, out)
	}
}

// Root in a sandbox owns /dev. Commands start in the root that rota-init has mounted for them, whatever
// an earlier command has put at its path: in the root of the container they could make namespaces.
func TestTheRootOfCommandsCannotBeReplaced(t *testing.T) {
	n := newNode(t)
	for id, readOnly := range map[uint64]bool{1: false, 2: true} {
		spec := n.spec(id)
		spec.ReadOnlyRoot = readOnly
		buildProbe(t, spec)
		sb := n.open(spec)
		if out, code := run(t, sb, "busybox mv /dev/rota /dev/away; busybox mkdir -p /dev/rota && busybox ln -s / /dev/rota/root"); code == 0 {
			t.Errorf("read-only root %v: the folder of rota-init was replaced: %s", readOnly, out)
		}
		if out, _ := run(t, sb, "/workspace/probe"); out != "done" {
			t.Errorf("read-only root %v: system calls after the exchange: %s", readOnly, out)
		}
	}
}

// Root in a sandbox gets nothing of the node.
func TestNothingLeavesASandbox(t *testing.T) {
	n := newNode(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	spec := n.spec(1)
	buildProbe(t, spec)
	sb := n.open(spec)
	if out, _ := run(t, sb, "/workspace/probe"); out != "done" {
		t.Errorf("system calls: %s", out)
	}
	if out, _ := run(t, sb, "cat /proc/sysvipc/shm"); strings.Count(out, "\n") > 0 {
		t.Errorf("shared memory outlives its processes: %s", out)
	}
	for _, c := range []struct{ name, script, not string }{
		{"loopback services of the node", fmt.Sprintf("nc -w 2 127.0.0.1 %d </dev/null && echo reached", l.Addr().(*net.TCPAddr).Port), "reached"},
		{"metadata of the cloud", "wget -T 2 -O - http://169.254.169.254/ && echo reached", "reached"},
		{"processes of the node", "test -d /proc/" + fmt.Sprint(os.Getpid()) + " && test $(ls -d /proc/[0-9]* | wc -l) -gt 20 && echo reached", "reached"},
		{"the socket of rota-init", "ls /dev/rota/socket | grep sock && echo reached", "reached"},
		{"descriptors of rota-init", "ls -l /proc/1/fd | grep -- '->' && echo reached", "reached"},
		{"the root of rota-init", "ls /proc/1/root/ && echo reached", "reached"},
		{"a mount", "mount -t tmpfs none /tmp && echo reached", "reached"},
		{"a user namespace", "unshare -U true && echo reached", "reached"},
		{"a device", "mknod /tmp/zero c 1 5 && echo reached", "reached"},
		{"a device of the image", "head -c 1 /zero > /tmp/byte && echo reached", "reached"},
		{"settings of the kernel", "echo 1 > /proc/sys/vm/overcommit_memory && echo reached", "reached"},
		{"memory of the kernel", "test $(head -c 1 /proc/kcore | wc -c) = 1 && echo reached", "reached"},
		{"cgroups", "ls /sys/fs/cgroup/* && echo reached", "reached"},
		{"the first process", "kill -TERM 1; kill -KILL 1; kill -QUIT 1; for s in SEGV BUS FPE ILL SYS STKFLT XCPU XFSZ; do kill -$s 1; done; sleep 0.1; echo alive > /tmp/alive", "reached"},
	} {
		if out, _ := run(t, sb, c.script); strings.Contains(out, c.not) {
			t.Errorf("%s: %s", c.name, out)
		}
	}
	out, _ := run(t, sb, "cat /tmp/alive; grep -E '^(CapEff|CapBnd|NoNewPrivs|Seccomp):' /proc/self/status")
	want := "alive\nCapEff:\t00000000800004fb\nCapBnd:\t00000000800004fb\nNoNewPrivs:\t1\nSeccomp:\t2"
	if out != want {
		t.Errorf("a command has\n%s\nnot\n%s", out, want)
	}
}

// Memory that outlives an attempt counts for none, so it is bounded for the sandbox.
func TestMemoryThatOutlivesAnAttemptIsBounded(t *testing.T) {
	n := newNode(t)
	spec := n.spec(1)
	spec.ReadOnlyRoot = true
	sb := n.open(spec)
	if out, _ := run(t, sb, "dd if=/dev/zero of=/dev/shm/x bs=1048576 count=100 2>/dev/null; stat -c %s /dev/shm/x; busybox rm /dev/shm/x"); out != "67108864" {
		t.Errorf("/dev/shm takes %s bytes of 100 MiB", out)
	}
	files := map[string]string{"/dev": "16384", "/dev/shm": "16384", "/run": "16384", "/tmp": "65536", "/var/tmp": "65536"}
	for dir, want := range files {
		if out, _ := run(t, sb, "stat -f -c %c "+dir); out != want {
			t.Errorf("%s takes %s files, want %s", dir, out, want)
		}
	}
	if out, _ := run(t, sb, "cat /proc/sys/kernel/sem"); out != "250\t32000\t32\t128" {
		t.Errorf("semaphores: %q", out)
	}
	if out, _ := run(t, sb, "grep -c ' /dev/pts .*max=256' /proc/self/mounts"); out != "1" {
		t.Errorf("terminals: %q", out)
	}
}

// Root in a sandbox owns /etc. Its first process must not wait for a pipe there, nor take the memory
// of the node for a file.
func TestTheFirstProcessReadsNoTrap(t *testing.T) {
	n := newNode(t)
	for i, trap := range []string{"busybox mkfifo /etc/passwd", "busybox truncate -s 1099511627776 /etc/passwd", "busybox ln -s /dev/zero /etc/passwd"} {
		sb := n.open(n.spec(uint64(i) + 1))
		if out, code := run(t, sb, "busybox rm /etc/passwd; "+trap); code != 0 {
			t.Fatal(out)
		}
		_, err := initcall.Start(t.Context(), sb.SocketDir, initcall.Command{Argv: []string{"true"}}, initcall.Files{V2: -1})
		if !errors.As(err, new(initcall.StartError)) || !initcall.Listening(sb.SocketDir) {
			t.Errorf("%s: %v", trap, err)
		}
	}
}
