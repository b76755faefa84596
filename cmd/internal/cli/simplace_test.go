package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestSimPlaceEqualsTheDynamicProgramme(t *testing.T) {
	for _, workers := range [][]string{
		{"--worker", "3:1=8ms,64=13ms"},
		{"--worker", "2:1=5ms,64=9ms", "--worker", "3:1=8ms,16=13ms", "--slots", "20"},
		{"--degree", "1:1=8ms,64=13ms", "--degree", "4:1=3ms,64=4500us", "--gpus", "9"},
	} {
		text, _ := simulated(t, exitOK, append([]string{"place", "--trajectories", "150", "--dp", "-o", "json"}, workers...)...)
		var r placeResult
		if err := json.Unmarshal([]byte(text), &r); err != nil {
			t.Fatal(err)
		}
		sum := 0
		for _, g := range r.Groups {
			sum += g.Trajectories
		}
		if !r.Simulated || sum != 150 || r.DPMS == nil || *r.DPMS != r.MakespanMS || r.MakespanMS <= 0 || r.GPUs > 9 {
			t.Errorf("%q: %s", workers, text)
		}
	}
}

func TestSimPlaceReadsAColumn(t *testing.T) {
	file := filepath.Join(t.TempDir(), "lengths.csv")
	if err := os.WriteFile(file, []byte("id,length\n1,10\n2,1000\n3,10\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	text, _ := simulated(t, exitOK, "place", "--lengths", file, "--worker", "2:1=10ms", "--dp")
	for _, want := range []string{"simulated: placement of 3 trajectories (of a file) on 2 workers", "1      1=10ms  1             1000", "2      1=10ms  2             10", "makespan 10.0 s, planned in", "Heddle, workers in this order: 10.0 s"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	for want, args := range map[string][]string{
		`no column "tokens"; name one of id, length with --column`: {"--lengths", file, "--column", "tokens"},
		"such as 64=13ms":             {"--worker", "2:64"},
		"write NUMBER:BATCH=TIME":     {"--worker", "1=8ms"},
		"need each other":             {"--gpus", "8"},
		"give points in increasing":   {"--worker", "2:2=1ms,1=1ms"},
		"at least 4":                  {"--degree", "4:1=1ms", "--gpus", "2"},
		"--trajectories must be from": {"--trajectories", "0"},
	} {
		code := exitUsage
		if strings.Contains(want, "no column") {
			code = exitError
		}
		if _, errText := simulated(t, code, append([]string{"place"}, args...)...); !strings.Contains(errText, want) {
			t.Errorf("%q says %q, want %q", args, errText, want)
		}
	}
}
