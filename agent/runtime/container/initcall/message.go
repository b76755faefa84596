package initcall

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// SocketName is the socket in the folder that a sandbox and the node share.
	SocketName = "init.sock"
	// Workspace is where the directory of the trajectory is in a sandbox.
	Workspace = "/workspace"
	// Cores is where CoresDir is in a sandbox.
	Cores = "/dev/rota/cores"
	// messageMax bounds a message: arguments and environment of a command, with room for the
	// escapes of JSON.
	messageMax = 8 << 20
	// sentenceMax bounds why a command could not be started, and answerBytesMax an answer.
	sentenceMax    = 4 << 10
	answerBytesMax = 64 << 10
	// filesMax bounds the descriptors of a command.
	filesMax    = 40
	headerBytes = 4
)

// ErrMalformed says that the other side does not speak this protocol.
var ErrMalformed = errors.New("malformed message")

// Command is a process to start in a sandbox.
type Command struct {
	Argv []string
	Env  []string // KEY=value; HOME and USER are added where they are missing
	// Dir is the working directory: absolute and there, or below Workspace, where it is made.
	Dir string
	// User is USER or USER:GROUP, by name or number; empty: root.
	User string
	// CPUs bind the process where no cpuset does; empty: they do not.
	CPUs []int
	// Terminal makes standard input the controlling terminal.
	Terminal bool
	// IntoV2 says that Files.V2 is sent, V1 how many of Files.Enter and of Files.Leave are.
	IntoV2 bool
	V1     int
}

// Files are the descriptors that go with a Command.
type Files struct {
	// Std are standard input, output and error.
	Std [3]int
	// V2 is the directory of the cgroup that the process starts in; -1: none.
	V2 int
	// Enter and Leave are files "tasks" of v1 cgroups: those of the attempt and, in the same
	// order, those of rota-init.
	Enter, Leave []int
}

func (f *Files) list() []int {
	fds := append([]int{}, f.Std[:]...)
	if f.V2 >= 0 {
		fds = append(fds, f.V2)
	}
	return append(append(fds, f.Enter...), f.Leave...)
}

// filesOf is the inverse of list.
func filesOf(c *Command, fds []int) (*Files, error) {
	want := 3 + 2*c.V1
	if c.IntoV2 {
		want++
	}
	if c.V1 < 0 || len(fds) != want {
		return nil, fmt.Errorf("%w: %d descriptors, not %d", ErrMalformed, len(fds), want)
	}
	f := &Files{Std: [3]int(fds), V2: -1}
	fds = fds[3:]
	if c.IntoV2 {
		f.V2, fds = fds[0], fds[1:]
	}
	f.Enter, f.Leave = fds[:c.V1], fds[c.V1:]
	return f, nil
}

// Started is the first answer.
type Started struct {
	// Error is a sentence for the owner of the command; empty: it runs.
	Error string
}

// Ended is the second answer: how the main process ended, as wait4 says it.
type Ended struct {
	Status       syscall.WaitStatus
	User, System time.Duration
	MaxRSSKiB    int64
}

// send writes one message, and with it descriptors.
func send(conn *net.UnixConn, m any, fds ...int) error {
	body, err := json.Marshal(m)
	if err != nil {
		return err
	}
	if len(body) > messageMax {
		return fmt.Errorf("%w: %d bytes", ErrMalformed, len(body))
	}
	frame := append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...)
	var rights []byte
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	n, _, err := conn.WriteMsgUnix(frame, rights, nil)
	if err == nil && n < len(frame) {
		_, err = conn.Write(frame[n:])
	}
	return err
}

// receive reads one message of at most so many bytes, and the descriptors that came with it, which
// the caller closes.
func receive(conn *net.UnixConn, m any, bytesMax uint32) (fds []int, err error) {
	var header [headerBytes]byte
	control := make([]byte, unix.CmsgSpace(filesMax*4))
	n, controlBytes, flags, _, err := conn.ReadMsgUnix(header[:], control)
	if err != nil {
		return nil, err
	}
	if fds, err = rightsIn(control[:controlBytes]); err != nil {
		return fds, err
	}
	if n == 0 {
		return fds, io.EOF
	}
	if flags&unix.MSG_CTRUNC != 0 {
		return fds, fmt.Errorf("%w: more than %d descriptors", ErrMalformed, filesMax)
	}
	if _, err := io.ReadFull(conn, header[n:]); err != nil {
		return fds, err
	}
	size := binary.BigEndian.Uint32(header[:])
	if size > bytesMax {
		return fds, fmt.Errorf("%w: %d bytes", ErrMalformed, size)
	}
	body := make([]byte, size)
	if _, err := io.ReadFull(conn, body); err != nil {
		return fds, err
	}
	if err := json.Unmarshal(body, m); err != nil {
		return fds, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	return fds, nil
}

func rightsIn(control []byte) (fds []int, err error) {
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	for i := range messages {
		some, err := unix.ParseUnixRights(&messages[i])
		if err != nil {
			continue // something else than descriptors
		}
		for _, fd := range some {
			unix.CloseOnExec(fd)
		}
		fds = append(fds, some...)
	}
	return fds, nil
}

// CoresDir is the folder on the node with the files that say which CPUs the commands of a sandbox
// have, by the folder of its socket. Commands can read it. A sandbox of an earlier release has none.
func CoresDir(socketDir string) string { return filepath.Join(filepath.Dir(socketDir), "cores") }
