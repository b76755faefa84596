package cli

import (
	"os"

	"golang.org/x/sys/unix"

	rotav1 "rota/api/gen/rota/v1"
)

// terminalSizeMax is the most rows and columns that an action's terminal may have.
const terminalSizeMax = 4096

// rawTerminal hands every key to the action, as it is typed. It returns what puts the terminal
// back; nil if the file is no terminal.
func rawTerminal(f *os.File) (restore func(), err error) {
	fd := int(f.Fd())
	before, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err != nil {
		return nil, nil //nolint:nilnil,nilerr // no terminal
	}
	raw := *before
	raw.Iflag &^= unix.IGNBRK | unix.BRKINT | unix.PARMRK | unix.ISTRIP | unix.INLCR | unix.IGNCR | unix.ICRNL | unix.IXON
	raw.Oflag &^= unix.OPOST
	raw.Lflag &^= unix.ECHO | unix.ECHONL | unix.ICANON | unix.ISIG | unix.IEXTEN
	raw.Cflag &^= unix.CSIZE | unix.PARENB
	raw.Cflag |= unix.CS8
	raw.Cc[unix.VMIN], raw.Cc[unix.VTIME] = 1, 0
	if err := unix.IoctlSetTermios(fd, unix.TCSETS, &raw); err != nil {
		return nil, err
	}
	return func() { _ = unix.IoctlSetTermios(fd, unix.TCSETSW, before) }, nil
}

// terminalSize is that of a terminal; nil if the file is none, or does not say.
func terminalSize(f *os.File) *rotav1.TerminalSize {
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil || size.Row == 0 || size.Col == 0 {
		return nil
	}
	return &rotav1.TerminalSize{Rows: min(uint32(size.Row), terminalSizeMax), Columns: min(uint32(size.Col), terminalSizeMax)}
}

// Keys that detach from an action: Ctrl-P, then Ctrl-Q, as in Docker.
const (
	detachFirst  = 'P' & 0x1f
	detachSecond = 'Q' & 0x1f
)

// detachKeys finds them in what is typed. The first key is held back until the one after it is
// known.
type detachKeys struct{ held bool }

// pass returns what is for the action, and whether the keys to detach follow it.
func (k *detachKeys) pass(typed []byte) (out []byte, detach bool) {
	for _, key := range typed {
		switch {
		case k.held && key == detachSecond:
			return out, true
		case k.held:
			out = append(out, detachFirst)
		}
		if k.held = key == detachFirst; !k.held {
			out = append(out, key)
		}
	}
	return out, false
}
