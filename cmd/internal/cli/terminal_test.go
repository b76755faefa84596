package cli

import "testing"

func TestKeysDetach(t *testing.T) {
	for _, c := range []struct {
		typed  []string
		out    string
		detach bool
	}{
		{[]string{"ls\r"}, "ls\r", false},
		{[]string{"a\x10\x11b"}, "a", true},
		{[]string{"a\x10", "\x11"}, "a", true},
		{[]string{"\x10", "x"}, "\x10x", false},
		{[]string{"\x10\x10\x11"}, "\x10", true},
		{[]string{"\x11\x10a"}, "\x11\x10a", false},
		{[]string{"\x10"}, "", false},
		{[]string{""}, "", false},
	} {
		var keys detachKeys
		var out []byte
		detach := false
		for _, typed := range c.typed {
			part, end := keys.pass([]byte(typed))
			out, detach = append(out, part...), end
		}
		if string(out) != c.out || detach != c.detach {
			t.Errorf("%q: %q, %v; want %q, %v", c.typed, out, detach, c.out, c.detach)
		}
	}
}
