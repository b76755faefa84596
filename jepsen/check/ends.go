package check

// ends: an action whose end is known beforehand is told to have ended so.
func ends(e *evidence, f *findings) {
	for _, end := range e.Ends {
		f.checked++
		if end.Got != end.Want {
			f.add(nil, "action %d is told as %s, it was %s", end.Action, end.Got, end.Want)
		}
	}
}
