package suite

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"testing"
	"time"
)

// How long the tests wait: with one core the suite takes 1.4 s, with two 1.1 s. So a
// second core helps, and yet two suites are better off with a core each (1.4 s each)
// than one after the other with two (1.1 and 2.2 s).
const (
	aloneFor    = 800 * time.Millisecond
	togetherFor = 75 * time.Millisecond
	together    = 8
)

// contended of the environment: the tests get into each other's way. They run one
// after the other, and take longer with more cores.
const contended = "SUITE_CONTENDED"

// TestMain says how many cores the suite may use before it runs. The testing
// package runs as many parallel tests as that at a time.
func TestMain(m *testing.M) {
	fmt.Println("cores", runtime.NumCPU())
	os.Exit(m.Run())
}

func TestAlone(*testing.T) { time.Sleep(aloneFor) }

func TestTogether(t *testing.T) {
	for i := range together {
		t.Run(strconv.Itoa(i), func(t *testing.T) {
			if os.Getenv(contended) != "" {
				time.Sleep(togetherFor * time.Duration(runtime.NumCPU()))
				return
			}
			t.Parallel()
			time.Sleep(togetherFor)
		})
	}
}
