package main

import (
	"strings"
	"testing"
)

func TestExamplesAreRead(t *testing.T) {
	all, err := parseExamples("# a comment\nA/B {\"c\":\"! d\"}\n\nA/C {} ! X|Y\n")
	if err != nil || len(all) != 2 || all["A/B"].body != `{"c":"! d"}` || all["A/B"].refused != nil ||
		strings.Join(all["A/C"].refused, ",") != "X,Y" {
		t.Errorf("%v, %v", all, err)
	}
	for _, text := range []string{"A/B\n", "A/B {}\nA/B {}\n"} {
		if all, err := parseExamples(text); err == nil {
			t.Errorf("%q is read as %v", text, all)
		}
	}
}
