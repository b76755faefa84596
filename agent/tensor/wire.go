package tensor

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// A message is the length of a JSON document (4 bytes, little endian) and the document. An
// answer with descriptors has one more byte behind it, which carries them.

// messageBytesMax is the longest document.
const messageBytesMax = 32 << 20

// request is what a client sends. Which fields are needed depends on Op.
type request struct {
	Op         string   `json:"op"`
	Key        Key      `json:"key,omitzero"`
	To         Key      `json:"to,omitzero"` // copy, load
	Tensors    []Tensor `json:"tensors,omitempty"`
	Dir        string   `json:"dir,omitempty"` // checkpoint, load; an absolute path or s3://BUCKET/PREFIX
	Slice      *Slice   `json:"slice,omitempty"`
	Deployment string   `json:"deployment,omitempty"` // list
	Keep       bool     `json:"keep,omitempty"`       // to_device, to_host
	Unverified bool     `json:"unverified,omitempty"` // to_host
}

// answer is what the agent sends.
type answer struct {
	Error   *wireError   `json:"error,omitempty"`
	Info    *Info        `json:"info,omitempty"`
	States  []Info       `json:"states,omitempty"`
	Stat    *Stat        `json:"stat,omitempty"`
	Moved   *Moved       `json:"moved,omitempty"`
	Tensors []WireTensor `json:"tensors,omitempty"`
	// Sizes are the bytes of the memfds that come with the answer.
	Sizes []uint64 `json:"sizes,omitempty"`
	// Handles are those of the groups in memory of the device, for another process.
	Handles [][]byte `json:"handles,omitempty"`
	// GPU is the UUID of the device that the handles are of.
	GPU string `json:"gpu,omitempty"`
}

// WireTensor says where a tensor is in the memfds of an answer.
type WireTensor struct {
	Tensor
	FD    int    `json:"fd"` // which of the memfds
	At    uint64 `json:"at"` // first byte
	Bytes uint64 `json:"bytes"`
}

type wireError struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// codes are the names of errors on the wire. Others are INTERNAL.
var codes = []struct {
	code string
	err  error
}{
	{"CORRUPT", ErrCorrupt}, {"INVALID", ErrInvalid}, {"EXISTS", ErrExists}, {"NOT_FOUND", ErrNotFound},
	{"MEMORY_FULL", ErrMemory}, {"DISK_FULL", ErrDisk}, {"NO_DISK", ErrNoDisk}, {"OFFLOADED", ErrOffloaded},
	{"MAPPED", ErrMapped}, {"HOLE", ErrHole}, {"CLOSED", ErrClosed},
	{"DEVICE_FULL", ErrDevice}, {"NO_DEVICE", ErrNoDevice}, {"DEVICE_FAILED", ErrDeviceFailed}, {"ON_DEVICE", ErrOnDevice},
	{"NO_HANDLE", ErrNoHandle}, {"NO_REMOTE", ErrNoRemote}, {"REMOTE_FAILED", ErrRemote},
}

func encodeError(err error) *wireError {
	for _, c := range codes {
		if errors.Is(err, c.err) {
			return &wireError{c.code, err.Error()}
		}
	}
	return &wireError{"INTERNAL", err.Error()}
}

// remoteError is an error of the agent that still is what it was there.
type remoteError struct {
	message string
	fact    error
}

func (e *remoteError) Error() string { return e.message }
func (e *remoteError) Unwrap() error { return e.fact }

func (w *wireError) decode() error {
	for _, c := range codes {
		if c.code == w.Code {
			return &remoteError{w.Message, c.err}
		}
	}
	return errors.New(w.Message)
}

func writeMessage(conn *net.UnixConn, message any, files []*os.File) error {
	b, err := json.Marshal(message)
	if err != nil {
		return err
	}
	if len(b) > messageBytesMax {
		return fmt.Errorf("%w: a message of %d bytes, at most %d are allowed", ErrInvalid, len(b), messageBytesMax)
	}
	if _, err := conn.Write(append(binary.LittleEndian.AppendUint32(nil, uint32(len(b))), b...)); err != nil {
		return err
	}
	if len(files) == 0 {
		return nil
	}
	fds := make([]int, len(files))
	for i, f := range files {
		fds[i] = int(f.Fd())
	}
	_, _, err = conn.WriteMsgUnix([]byte{0}, unix.UnixRights(fds...), nil)
	return err
}

func readMessage(r io.Reader, message any) error {
	var length [4]byte
	if _, err := io.ReadFull(r, length[:]); err != nil {
		return err
	}
	n := binary.LittleEndian.Uint32(length[:])
	if n > messageBytesMax {
		return fmt.Errorf("%w: a message of %d bytes, at most %d are allowed", ErrInvalid, n, messageBytesMax)
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(r, b); err != nil {
		return err
	}
	if err := json.Unmarshal(b, message); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return nil
}

// readFiles receives the descriptors that follow a message.
func readFiles(conn *net.UnixConn, n int) (files []*os.File, err error) {
	if n == 0 {
		return nil, nil
	}
	oob := make([]byte, unix.CmsgSpace(4*GroupsMax))
	_, got, _, _, err := conn.ReadMsgUnix(make([]byte, 1), oob)
	if err != nil {
		return nil, err
	}
	messages, err := unix.ParseSocketControlMessage(oob[:got])
	if err != nil {
		return nil, err
	}
	for _, m := range messages {
		fds, err := unix.ParseUnixRights(&m)
		if err != nil {
			return files, err
		}
		for _, fd := range fds {
			files = append(files, os.NewFile(uintptr(fd), "memfd:rota-state"))
		}
	}
	if len(files) != n {
		return files, fmt.Errorf("%d descriptors came, not %d; is the limit of open files too low?", len(files), n)
	}
	return files, nil
}
