package demo

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// turn is one step of a trajectory: the model thinks, then acts.
type turn struct {
	think time.Duration
	argv  []string // {{cores}} is the number of cores granted
	// maxCores is how many cores the command can use; it starts with one.
	maxCores uint32
}

// trajectory is what one coding agent does from start to end.
type trajectory struct {
	name  string
	turns []turn
}

// packages of the standard library that build and test quickly, whose tests need
// nothing from the machine, and of which few others have to be built again to be
// tested, so that a cold build cache is warm soon.
var packages = slices.Concat(suites...)

// suites are groups of packages that are tested together, several at a time.
var suites = [][]string{
	{"regexp/syntax", "bufio", "text/template/parse", "encoding/base64"},
	{"slices", "container/heap", "encoding/csv", "maps", "html"},
	{"errors", "hash/crc32", "text/scanner", "text/tabwriter"},
}

// Turns of a trajectory, and the bounds of the time to think before each: longer than
// most actions take, though shorter than models think, as the demo is to be short.
const (
	turns              = 2
	thinkMin, thinkMax = 800 * time.Millisecond, 1800 * time.Millisecond
)

// makeTrajectories makes n trajectories that depend on nothing but the seed.
func makeTrajectories(seed uint64, batch, n int, coresMax uint32) []trajectory {
	list := make([]trajectory, n)
	for i := range list {
		r := rand.New(rand.NewPCG(seed, uint64(batch)<<32|uint64(i)))
		t := trajectory{name: fmt.Sprintf("coder-%d-%d", batch+1, i+1)}
		for range turns {
			t.turns = append(t.turns, makeTurn(r, coresMax))
		}
		list[i] = t
	}
	return list
}

func makeTurn(r *rand.Rand, coresMax uint32) turn {
	t := turn{think: thinkMin + time.Duration(r.Int64N(int64(thinkMax-thinkMin))), maxCores: 1}
	pkg := packages[r.IntN(len(packages))]
	switch r.IntN(10) {
	case 0, 1:
		t.argv = []string{"go", "build", pkg}
	case 2, 3:
		t.argv = []string{"go", "vet", pkg}
	case 4, 5, 6:
		t.argv = []string{"go", "test", "-count=1", pkg}
	default:
		t.maxCores = min(coresMax, 4)
		t.argv = append([]string{"go", "test", "-count=1", "-p", "{{cores}}"}, suites[r.IntN(len(suites))]...)
	}
	return t
}

func countTurns(batch []trajectory) int {
	n := 0
	for _, t := range batch {
		n += len(t.turns)
	}
	return n
}
