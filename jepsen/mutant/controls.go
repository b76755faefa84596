package mutant

import "strings"

// Controls returns one entry without a bug for each kind of hunt: who notices
// something there notices nothing that means anything. It is tried as often as the
// slowest of its mutants was until it was caught, by any checker.
func Controls(mutants []Mutant, catches []Catch) (controls []Mutant) {
	at := map[string]int{}
	for i, m := range mutants {
		name := "no bug, " + m.Hunt.Engine + " " + strings.Join(m.Hunt.Args, " ")
		if _, known := at[name]; !known {
			at[name] = len(controls)
			control := Mutant{Name: name, Bug: "none", Hunt: m.Hunt.by()}
			control.Hunt.Tries = 1
			controls = append(controls, control)
		}
		hunt := &controls[at[name]].Hunt
		hunt.Within = max(hunt.Within, m.Hunt.Within)
		if catches[i].Caught {
			hunt.Tries = max(hunt.Tries, catches[i].Tries)
		}
	}
	return controls
}
