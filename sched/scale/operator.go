package scale

// Operator is a topology of a key resource as Arranger sees it (Appendix B, "DP
// Operator"). What is free is a state; states have numbers. Where any free units
// are as good as any others (cores of a node) the state is how many there are,
// and Arranger needs no operator. GPUs in chunks have one.
//
// Compared with the paper, Start(S) is gone, which bounds a loop only, and
// IsValid, whose answer is whether the table holds a finite cost.
type Operator interface {
	// States returns how many states there are. Their numbers are 0 to States()-1.
	States() int
	// Full returns the state in which all is free that is free now.
	Full() int
	// Prev returns the state that is left of state j when an action takes k units,
	// and false if j cannot hold them.
	Prev(j, k int) (int, bool)
}
