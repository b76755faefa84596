package runtime

import (
	"bytes"
	"errors"
	"os"
	"testing"
	"time"
)

// sink takes as much as it has room for, as a pipe does.
type sink struct {
	room   int
	got    []byte
	closed bool
}

func (s *sink) SetWriteDeadline(time.Time) error { return nil }

func (s *sink) Close() error {
	s.closed = true
	return nil
}

func (s *sink) Write(data []byte) (int, error) {
	n := min(len(data), s.room)
	s.got, s.room = append(s.got, data[:n]...), s.room-n
	if n < len(data) {
		return n, os.ErrDeadlineExceeded
	}
	return n, nil
}

// FuzzInput has two writers write what four bytes of the input say: who, from where, how much,
// and how much room there is. Each has a text of its own, all of which arrives in its order
// and once, however calls are repeated.
func FuzzInput(f *testing.F) {
	f.Add([]byte{0, 0, 10, 100, 1, 0, 10, 5, 1, 5, 10, 100, 0, 0, 20, 3, 2, 0, 0, 0, 0, 0, 1, 1})
	f.Add([]byte{0, 9, 1, 1, 3, 0, 200, 255, 0, 255, 255, 255})
	var texts [2][]byte
	for i := range 1 << 16 {
		texts[0] = append(texts[0], byte(i)&0x7f)
		texts[1] = append(texts[1], byte(i)|0x80)
	}
	f.Fuzz(func(t *testing.T, script []byte) {
		to := &sink{}
		in := newInput(to, false)
		var at [2]uint64
		ended := false
		for ; len(script) >= 4; script = script[4:] {
			who, from, count := script[0]&1, uint64(script[1]), uint64(script[2])
			eof := script[0]&6 == 2
			to.room += int(script[3])
			// Offsets around where the writer is, below and above.
			offset := uint64(max(0, int64(at[who])+int64(from)-128))
			data := texts[who][min(offset, 1<<16):min(offset+count, 1<<16)]
			before, closed := len(to.got), ended
			state, err := in.write(t.Context(), Input{Writer: string('a' + rune(who)), Offset: &offset, Data: data, EOF: eof})
			wrote := uint64(len(to.got) - before)
			switch {
			case offset > at[who]:
				if !errors.Is(err, ErrInputGap) || wrote > 0 {
					t.Fatalf("from %d, at %d: %+v, %v", offset, at[who], state, err)
				}
				continue
			case closed && offset+uint64(len(data)) > at[who]:
				if !errors.Is(err, ErrInputClosed) || wrote > 0 {
					t.Fatalf("after the end: %+v, %v", state, err)
				}
				continue
			case err != nil:
				t.Fatal(err)
			}
			if at[who] += wrote; state.Offset != at[who] || state.Closed != to.closed || to.closed && !closed && !eof {
				t.Fatalf("%+v, want %d", state, at[who])
			}
			ended = state.Closed
		}
		for who := range texts {
			var mine []byte
			for _, b := range to.got {
				if (b >= 0x80) == (who == 1) {
					mine = append(mine, b)
				}
			}
			if !bytes.Equal(mine, texts[who][:at[who]]) {
				t.Fatalf("writer %d: %d bytes arrived, or others than the %d that were taken", who, len(mine), at[who])
			}
		}
	})
}

func TestWritersAreBounded(t *testing.T) {
	in := newInput(&sink{room: 1 << 20}, false)
	now := time.Unix(1, 0)
	in.now = func() time.Time { return now }
	write := func(i int, offset uint64) error {
		_, err := in.write(t.Context(), Input{Writer: string(rune(0x4e00 + i)), Offset: &offset, Data: []byte("x")})
		return err
	}
	for i := range writersMax + 1 {
		now = now.Add(time.Second)
		if err := write(i, 0); (i < writersMax) != (err == nil) || err != nil && !errors.Is(err, ErrTooMany) {
			t.Fatalf("writer %d: %v", i, err)
		}
	}
	// An action that runs for weeks is written to by many, one after the other.
	now = now.Add(writerKeep - 2*time.Second)
	if err := write(0, 1); err != nil {
		t.Fatal(err)
	}
	now = now.Add(-(writersMax - 2) * time.Second)
	if err := write(writersMax, 0); !errors.Is(err, ErrTooMany) {
		t.Errorf("before any was silent for long: %v", err)
	}
	now = now.Add((writersMax - 2) * time.Second)
	for i := range 100 {
		if err := write(writersMax+i, 0); err != nil {
			t.Fatalf("after %d were silent for long: %v", i+1, err)
		}
		now = now.Add(time.Second)
	}
	if err := write(0, 2); err != nil {
		t.Errorf("a writer was forgotten that had not been silent: %v", err)
	}
	if err := write(1, 1); !errors.Is(err, ErrInputGap) {
		t.Errorf("the oldest writer is not the one that was forgotten: %v", err)
	}
}

// A terminal takes the first Ctrl-D after a part of a line for the end of that part.
func TestTheEndOfATerminalEndsItsLine(t *testing.T) {
	for _, tt := range []struct {
		text string
		room []int // of each call; the last ends it
		want string
	}{
		{"", []int{1}, "\x04"},
		{"line\n", []int{100}, "line\n\x04"},
		{"line\r", []int{100}, "line\r\x04"},
		{"part", []int{100}, "part\x04\x04"},
		{"part", []int{4, 1, 0, 1}, "part\x04\x04"},
		{"part", []int{5, 1}, "part\x04\x04"},
	} {
		to := &sink{}
		in := newInput(to, true)
		for i, room := range tt.room {
			to.room = room
			offset := uint64(0)
			state, err := in.write(t.Context(), Input{Offset: &offset, Data: []byte(tt.text), EOF: true})
			if last := i == len(tt.room)-1; err != nil || state.Closed != last {
				t.Errorf("%q, call %d: %+v, %v", tt.text, i, state, err)
			}
		}
		if string(to.got) != tt.want || to.closed {
			t.Errorf("%q: the terminal got %q", tt.text, to.got)
		}
	}
}
