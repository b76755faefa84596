package suite

import (
	"bytes"
	"compress/flate"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"runtime"
	"testing"
)

// Bytes of text that are compressed by one test, and by each of those that run at
// the same time: so much that a second core helps, and that two suites are better
// off with a core each than one after the other with two.
const (
	aloneBytes    = 1792 << 10
	togetherBytes = 208 << 10
	together      = 8
)

// TestMain says how many cores the suite may use before it runs.
func TestMain(m *testing.M) {
	fmt.Println("cores", runtime.NumCPU())
	os.Exit(m.Run())
}

func TestOneLongText(t *testing.T) { roundTrip(t, aloneBytes) }

func TestShortTexts(t *testing.T) {
	for i := range together {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			roundTrip(t, togetherBytes)
		})
	}
}

// roundTrip compresses a text and wants it back.
func roundTrip(t *testing.T, size int) {
	var packed bytes.Buffer
	w, err := flate.NewWriter(&packed, flate.BestCompression)
	if err != nil {
		t.Fatal(err)
	}
	text := words(size)
	if _, err := w.Write(text); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(flate.NewReader(&packed))
	if err != nil || !bytes.Equal(got, text) {
		t.Fatalf("got %d bytes back, want %d: %v", len(got), size, err)
	}
}

// words is a text of so many bytes.
func words(size int) []byte {
	rng, text := rand.New(rand.NewPCG(1, 2)), make([]byte, 0, size+8)
	for len(text) < size {
		text = fmt.Appendf(text, "w%d ", rng.IntN(2000))
	}
	return text[:size]
}
