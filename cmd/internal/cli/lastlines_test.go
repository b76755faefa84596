package cli

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	rotav1 "rota/api/gen/rota/v1"
)

func TestLastLinesAreThoseOfTheWhole(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pieces := rapid.SliceOf(rapid.StringOf(rapid.SampledFrom([]rune("a\n")))).Draw(t, "pieces")
		most := rapid.IntRange(0, 5).Draw(t, "most")
		l := &lastLines{most: most}
		whole := ""
		for _, p := range pieces {
			l.write(&rotav1.OutputChunk{Offset: uint64(len(whole)), Data: []byte(p)})
			whole += p
		}
		lines := strings.SplitAfter(whole, "\n")
		if lines[len(lines)-1] == "" {
			lines = lines[:len(lines)-1]
		}
		want := strings.Join(lines[max(0, len(lines)-most):], "")
		l.stdout.cut(most)
		if got := string(l.stdout.data); got != want || l.stdout.end != uint64(len(whole)) {
			t.Fatalf("the last %d lines of %q are %q to %d, want %q", most, whole, got, l.stdout.end, want)
		}
	})
}

// One line that never ends comes in many pieces, and is not copied for each of them.
func TestLastLinesAreCutSeldom(t *testing.T) {
	const pieces = 4096
	l := &lastLines{most: 1}
	piece := &rotav1.OutputChunk{Data: []byte(strings.Repeat("x", 1024))}
	cuts, kept := 0, 0
	for range pieces {
		l.write(piece)
		if l.stdout.kept != kept {
			cuts, kept = cuts+1, l.stdout.kept
		}
	}
	if cuts > 16 {
		t.Errorf("%d pieces of a line are copied %d times", pieces, cuts)
	}
	if l.stdout.cut(1); len(l.stdout.data) != pieces*1024 {
		t.Errorf("%d bytes of the line are left", len(l.stdout.data))
	}
}
