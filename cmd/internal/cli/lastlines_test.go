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
		if got := string(l.stdout.data); got != want || l.stdout.end != uint64(len(whole)) {
			t.Fatalf("the last %d lines of %q are %q to %d, want %q", most, whole, got, l.stdout.end, want)
		}
	})
}
