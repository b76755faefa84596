package cli

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	rotav1 "rota/api/gen/rota/v1"
)

func lifetime(least, below time.Duration, ended, cut float64) *rotav1.ClassLifetime {
	return &rotav1.ClassLifetime{Least: durationpb.New(least), Below: durationpb.New(below), Ended: ended, Cut: cut}
}

func TestDrawClass(t *testing.T) {
	c := &rotav1.Class{
		Widths: []*rotav1.ClassWidth{
			{Units: 1, MeanDuration: durationpb.New(8 * time.Second), Attempts: 12},
			{Units: 4, MeanDuration: durationpb.New(2 * time.Second), Attempts: 3},
		},
		Lifetimes: []*rotav1.ClassLifetime{
			lifetime(1024, 1280, 1, 0), lifetime(1280, 1536, 7, 0), lifetime(1792, 2048, 2, 2),
		},
		Sizes: []*rotav1.ClassSize{
			{MeanWork: durationpb.New(3 * time.Second), Attempts: 9},
			{Least: 64, Most: 127, MeanWork: durationpb.New(6 * time.Second), Attempts: 4},
		},
		WorkP50: durationpb.New(1400), WorkP90: durationpb.New(2 * time.Microsecond),
	}
	var b bytes.Buffer
	drawClass(&b, c)
	want := `
CORES OR GPUS  ATTEMPTS  MEAN
1              12        8s    ########################################
4              3         2s    ##########

WORK WITH ONE     ENDED  CUT OFF
1.02µs to 1.28µs  1      0        ######
1.28µs to 1.54µs  7      0        ########################################
1.54µs to 1.79µs  0      0
1.79µs to 2.05µs  2      2        ###########------------

SIZE HINT  ATTEMPTS  MEAN WITH ONE
all        9         3s             ####################
64 to 127  4         6s             ########################################
`
	got := strings.NewReplacer("█", "#", "░", "-").Replace(b.String())
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if got, want := workText(c), "half take up to 1.4µs, 90 % up to 2µs, with one core or GPU"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := workText(&rotav1.Class{}); got != "" {
		t.Errorf("nothing is known, and told as %q", got)
	}
}

// However much lifetimes differ, they fit on a screen, and none is left out.
func TestLifetimesAreMerged(t *testing.T) {
	var all []*rotav1.ClassLifetime
	for i := 10; i < 40; i += 3 {
		all = append(all, lifetime(5<<i, 6<<i, 1, 0))
	}
	merged, sum := mergeLifetimes(all), 0.0
	for i, l := range merged {
		sum += l.Ended
		if i > 0 && l.Least.AsDuration() != merged[i-1].Below.AsDuration() {
			t.Errorf("a bar begins at %v, after %v", l.Least.AsDuration(), merged[i-1].Below.AsDuration())
		}
	}
	if sum != float64(len(all)) || len(merged) > 32 {
		t.Errorf("%d bars with %.0f of %d attempts", len(merged), sum, len(all))
	}
}
