package runtime

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"rota/agent/plan"
)

// protocolVersion changes when frames change their meaning. A supervisor may be
// older than its agent, by as long as its longest attempt.
const protocolVersion = 1

// frameBytesMax bounds a frame: an attempt's arguments and environment, escaped.
const frameBytesMax = 1 << 20

// listPage is how many ends one frame of a list carries: 4 KiB of output each,
// in base64, plus the rest, stay far below frameBytesMax.
const listPage = 64

type op string

// Requests carry an ID that the reply repeats; exits are sent unasked.
const (
	opHello    op = "hello"
	opStart    op = "start"
	opKill     op = "kill"
	opList     op = "list"
	opForget   op = "forget"
	opDeadline op = "deadline"
	opStop     op = "stop"
	opReply    op = "reply"
	opMore     op = "more" // part of a reply that has not come to its end
	opExit     op = "exit"
)

// frame is every message in either direction.
type frame struct {
	ID       uint64       `json:"id,omitempty"`
	Op       op           `json:"op"`
	Hello    *hello       `json:"hello,omitempty"`
	Spec     *Spec        `json:"spec,omitempty"`
	Keys     []plan.Key   `json:"keys,omitempty"`
	Exits    []plan.Exit  `json:"exits,omitempty"`
	Reason   plan.Reason  `json:"reason,omitempty"`
	Deadline int64        `json:"deadline,omitempty"`
	Error    *remoteError `json:"error,omitempty"`
}

// hello opens a connection: the agent says what it speaks, the supervisor what
// it speaks and is.
type hello struct {
	Version     int              `json:"version"`
	PID         int              `json:"pid,omitempty"`
	Running     int              `json:"running,omitempty"`
	Mode        string           `json:"mode,omitempty"`
	NotEnforced []string         `json:"not_enforced,omitempty"`
	Options     SuperviseOptions `json:"options"`
}

var errFrameSize = errors.New("frame is larger than allowed")

// appendFrame appends the frame with its length in front.
func appendFrame(b []byte, f *frame) ([]byte, error) {
	body, err := json.Marshal(f)
	if err != nil {
		return b, fmt.Errorf("encode frame: %w", err)
	}
	if len(body) > frameBytesMax {
		return b, fmt.Errorf("%w: %d bytes, at most %d", errFrameSize, len(body), frameBytesMax)
	}
	b = binary.BigEndian.AppendUint32(b, uint32(len(body)))
	return append(b, body...), nil
}

// readFrame reads one frame. The memory it takes is bounded before it is taken.
func readFrame(r io.Reader) (*frame, error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	size := binary.BigEndian.Uint32(head[:])
	if size > frameBytesMax {
		return nil, fmt.Errorf("%w: %d bytes, at most %d", errFrameSize, size, frameBytesMax)
	}
	body := make([]byte, size)
	if _, err := io.ReadFull(r, body); err != nil {
		return nil, fmt.Errorf("frame cut short: %w", err)
	}
	f := new(frame)
	if err := json.Unmarshal(body, f); err != nil {
		return nil, fmt.Errorf("decode frame: %w", err)
	}
	return f, nil
}
