package mutant

import "strings"

// Controls returns one entry without a bug for each kind of hunt: who notices
// something there notices nothing that means anything.
func Controls(mutants []Mutant) (controls []Mutant) {
	seen := map[string]bool{}
	for _, m := range mutants {
		hunt := m.Hunt.Engine + " " + strings.Join(m.Hunt.Args, " ")
		if seen[hunt] {
			continue
		}
		seen[hunt] = true
		controls = append(controls, Mutant{Name: "no bug, " + hunt, Bug: "none", Hunt: m.Hunt})
	}
	return controls
}
