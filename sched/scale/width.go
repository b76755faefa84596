package scale

// Width returns how many of the free cores an action gets that asks for between
// least and most: as many as there are, greedily, or 0 if there are too few.
func Width(least, most, free int) int {
	if free < least {
		return 0
	}
	return min(most, free)
}
