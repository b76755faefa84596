package state

import (
	"fmt"
	"math/bits"
	"slices"
	"strings"
)

// GPUReasonMax is how many bytes the reason has at most for which a GPU is out of use.
const GPUReasonMax = 128

// GPUFault is why a GPU of a node is out of use.
type GPUFault struct {
	GPU    uint32
	Reason string // "": nothing was said
}

// SetOf returns the GPUs of some faults.
func SetOf(faults []GPUFault) (set GPUSet) {
	for i := range faults {
		set |= 1 << faults[i].GPU
	}
	return set
}

// FaultOf returns the reason that faults have for a GPU.
func FaultOf(faults []GPUFault, gpu uint32) (reason string, found bool) {
	i, found := slices.BinarySearchFunc(faults, gpu, func(f GPUFault, gpu uint32) int { return int(f.GPU) - int(gpu) })
	if !found {
		return "", false
	}
	return faults[i].Reason, true
}

// OutOfUse returns the GPUs of the node that nothing new is given: those that its agent found
// sick and its operator does not vouch for, and those that an operator has disabled.
func (r *Node) OutOfUse() GPUSet {
	if len(r.Sick) == 0 && len(r.Disabled) == 0 {
		return 0
	}
	return SetOf(r.Sick)&^r.Trusted | SetOf(r.Disabled)
}

// InUse returns the GPUs of the node that are not out of use.
func (r *Node) InUse() GPUSet { return AllGPUs(r.GPUs.Count) &^ r.OutOfUse() }

// largestChunk returns how many GPUs the largest chunk has that the node could give if nothing
// ran on it.
func (r *Node) largestChunk() uint32 {
	if r.GPUs.Count == 0 {
		return 0
	}
	out := r.OutOfUse()
	for units := min(ChunkMax, uint32(1)<<(bits.Len32(r.GPUs.Count)-1)); units > 0; units /= 2 {
		for first := uint32(0); first+units <= r.GPUs.Count; first += units {
			if (Chunk{first, units}).GPUs()&out == 0 {
				return units
			}
		}
	}
	return 0
}

func (r *GPUFault) code(c *codec) {
	number(c, &r.GPU)
	c.text(&r.Reason)
}

// checkGPUHealth: what is said of the GPUs of a node is of GPUs that it has, once for each, in
// order, and came with feature level 3.
func (s *State) checkGPUHealth(n *Node) error {
	if len(n.Sick)+len(n.Disabled) > 0 && s.Meta().Level < LevelResizing {
		return fmt.Errorf("node %s: GPUs %v are out of use, and the feature level is %d", n.Name, n.OutOfUse().Slice(), s.Meta().Level)
	}
	for _, faults := range [][]GPUFault{n.Sick, n.Disabled} {
		for i, f := range faults {
			if f.GPU >= n.GPUs.Count || i > 0 && f.GPU <= faults[i-1].GPU || len(f.Reason) > GPUReasonMax {
				return fmt.Errorf("node %s: GPU %d of %d is out of use, out of order or for %q", n.Name, f.GPU, n.GPUs.Count, f.Reason)
			}
		}
	}
	if n.Trusted&^SetOf(n.Sick) != 0 {
		return fmt.Errorf("node %s: GPUs %v are trusted, and only %v are sick", n.Name, n.Trusted.Slice(), SetOf(n.Sick).Slice())
	}
	return nil
}

// reasonsShown is how many reasons a text has at most.
const reasonsShown = 3

// OutOfUseText says which of some GPUs of the node are out of use and why, such as
// "2 GPUs of n1 are out of use: XID 79"; empty if none is.
func (r *Node) OutOfUseText(set GPUSet) string {
	set &= r.OutOfUse()
	var reasons []string
	more := 0
	for _, gpu := range set.Slice() {
		reason := r.whyOut(gpu)
		switch {
		case slices.Contains(reasons, reason):
		case len(reasons) == reasonsShown:
			more++
		default:
			reasons = append(reasons, reason)
		}
	}
	text := strings.Join(reasons, "; ")
	if more > 0 {
		text += fmt.Sprintf("; and %d more reasons", more)
	}
	switch n := set.Len(); n {
	case 0:
		return ""
	case 1:
		return fmt.Sprintf("GPU %d of %s is out of use: %s", set.Slice()[0], r.Name, text)
	default:
		return fmt.Sprintf("%d GPUs of %s are out of use: %s", n, r.Name, text)
	}
}

// whyOut says why a GPU is out of use.
func (r *Node) whyOut(gpu uint32) string {
	if reason, disabled := FaultOf(r.Disabled, gpu); disabled && reason != "" {
		return "disabled by an operator: " + reason
	} else if disabled {
		return "disabled by an operator"
	}
	reason, _ := FaultOf(r.Sick, gpu)
	return reason
}
