package resp

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"rota/agent/tier"
)

const (
	// bufferBytes is also the longest line.
	bufferBytes = 64 << 10
	argsMax     = 1 << 16
	// argsBytesMax bounds all arguments of a command that are no values.
	argsBytesMax = 4 << 20
	// drainMax is the longest argument that is read only to be refused. With a longer one
	// the connection ends. It is the limit that Redis has.
	drainMax = 512 << 20
)

// protocolError is an error after which nothing that follows can be understood.
type protocolError string

func (e protocolError) Error() string { return "Protocol error: " + string(e) }

// command is what a client asks for. Arguments that are values are in the memory of the
// store, and nil in args.
type command struct {
	name   string // in lower case
	args   [][]byte
	values []*tier.Value
	refuse error // why the command is not run, though it was read to its end
}

func (cmd *command) release() {
	for _, v := range cmd.values {
		if v != nil {
			v.Release()
		}
	}
	cmd.values = nil
}

// takeValue hands the value at i over.
func (cmd *command) takeValue(i int) *tier.Value {
	v := cmd.values[i]
	cmd.values[i] = nil
	return v
}

// isValue says whether argument i of a command, whose name is argument 0, is a value.
func isValue(name string, i int) bool {
	switch name {
	case "set":
		return i == 2
	case "setex", "psetex":
		return i == 3
	case "mset":
		return i > 0 && i%2 == 0
	}
	return false
}

// limits bound a command: the number of its arguments, and the bytes of all that are no values. A stranger
// that asks for more is not understood.
type limits struct {
	args, bytes int
	stranger    bool
}

// allocate returns memory for a value of n bytes.
type allocate func(n uint64) (*tier.Value, error)

// readCommand reads one command; nil for an empty line. Its values are to be released,
// also when it fails.
func readCommand(r *bufio.Reader, left limits, memory allocate) (*command, error) {
	line, err := readLine(r)
	if err != nil {
		return nil, err
	}
	if len(line) == 0 || line[0] != '*' {
		return inline(string(line), left)
	}
	n, err := strconv.Atoi(string(line[1:]))
	if err != nil || n > left.args {
		return nil, left.tooMany("invalid multibulk length")
	}
	if n <= 0 {
		return nil, nil
	}
	c := &command{}
	for i := range n {
		if err := c.readArg(r, i, &left, memory); err != nil {
			c.release()
			return nil, err
		}
	}
	return c, nil
}

// tooMany is why a command is not read that is beyond the limits.
func (l limits) tooMany(why string) error {
	if l.stranger {
		why = "unauthenticated " + strings.TrimPrefix(why, "invalid ")
	}
	return protocolError(why)
}

func inline(line string, left limits) (*command, error) {
	fields := strings.Fields(line)
	if len(fields) == 0 {
		return nil, nil
	}
	if len(fields) > left.args || left.stranger && len(line) > left.bytes {
		return nil, left.tooMany("invalid inline request")
	}
	c := &command{name: strings.ToLower(fields[0])}
	for i := range fields {
		if isValue(c.name, i) {
			c.refuse = errors.New("values are not taken inline; send the command as an array")
		}
		c.args = append(c.args, []byte(fields[i]))
	}
	return c, nil
}

// readArg reads argument i. left is what arguments may still have.
func (cmd *command) readArg(r *bufio.Reader, i int, left *limits, memory allocate) error {
	line, err := readLine(r)
	if err != nil {
		return err
	}
	if len(line) == 0 || line[0] != '$' {
		return protocolError(fmt.Sprintf("expected '$', got '%.1s'", line))
	}
	n, err := strconv.Atoi(string(line[1:]))
	if err != nil || n < 0 || n > drainMax || left.stranger && n > left.bytes {
		return left.tooMany("invalid bulk length")
	}
	var arg []byte
	var value *tier.Value
	switch {
	case cmd.refuse != nil:
	case isValue(cmd.name, i):
		if value, cmd.refuse = memory(uint64(n)); value != nil {
			arg = value.Bytes()
		}
	case n > tier.KeyBytesMax || n > left.bytes:
		cmd.refuse = fmt.Errorf("argument of %d bytes: %w of %d, and of %d for all but values", n, tier.ErrTooLarge, tier.KeyBytesMax, argsBytesMax)
	default:
		arg = make([]byte, n)
		left.bytes -= n
	}
	cmd.values = append(cmd.values, value)
	if cmd.args = append(cmd.args, arg); value != nil {
		cmd.args[i] = nil
	}
	if cmd.refuse != nil {
		_, err = io.CopyN(io.Discard, r, int64(n))
	} else {
		_, err = io.ReadFull(r, arg)
	}
	if err != nil {
		return err
	}
	if i == 0 {
		cmd.name = strings.ToLower(string(arg))
	}
	return readEnd(r)
}

// readEnd reads the end of an argument.
func readEnd(r *bufio.Reader) error {
	var end [2]byte
	if _, err := io.ReadFull(r, end[:]); err != nil {
		return err
	}
	if end != [2]byte{'\r', '\n'} {
		return protocolError("an argument does not end where it should")
	}
	return nil
}

// readLine reads a line without its end. It is valid until the next read.
func readLine(r *bufio.Reader) ([]byte, error) {
	line, err := r.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		return nil, protocolError("too big inline request")
	}
	if err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(line[:len(line)-1], []byte{'\r'}), nil
}
