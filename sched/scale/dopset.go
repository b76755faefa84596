package scale

import (
	"errors"
	"fmt"
	"slices"
)

// UnitsMax bounds degrees of a key resource.
const UnitsMax = 1 << 20

// dopsMax bounds how many degrees one action may choose from.
const dopsMax = 4096

// DoPSet are the degrees of the key resource that an action can use (§4.1): all
// from the least to the most, or a set of some.
type DoPSet struct {
	least, most int32
	set         []int32 // nil if all between are allowed
}

// Range allows every degree from least to most.
func Range(least, most int32) (DoPSet, error) {
	a := DoPSet{least: least, most: most}
	switch {
	case least < 1:
		return DoPSet{}, fmt.Errorf("the least degree is %d, and must be at least 1", least)
	case most < least:
		return DoPSet{}, fmt.Errorf("the most is %d, which is below the least, %d", most, least)
	case most > UnitsMax:
		return DoPSet{}, fmt.Errorf("the most is %d, and may be at most %d", most, UnitsMax)
	case a.Len() > dopsMax:
		return DoPSet{}, fmt.Errorf("%d degrees to choose from, at most %d are allowed", a.Len(), dopsMax)
	}
	return a, nil
}

// Set allows the degrees named, which must ascend. One without gaps is a range.
func Set(dops ...int32) (DoPSet, error) {
	n := len(dops)
	if n == 0 {
		return DoPSet{}, errors.New("the set of allowed degrees is empty")
	}
	for i, u := range dops {
		switch {
		case u < 1:
			return DoPSet{}, fmt.Errorf("an allowed degree is %d, and must be at least 1", u)
		case u > UnitsMax:
			return DoPSet{}, fmt.Errorf("an allowed degree is %d, and may be at most %d", u, UnitsMax)
		case i > 0 && u <= dops[i-1]:
			return DoPSet{}, fmt.Errorf("allowed degrees must ascend: %d comes after %d", u, dops[i-1])
		}
	}
	if n > dopsMax {
		return DoPSet{}, fmt.Errorf("%d degrees to choose from, at most %d are allowed", n, dopsMax)
	}
	a := DoPSet{least: dops[0], most: dops[n-1]}
	if a.Len() != n {
		a.set = slices.Clone(dops)
	}
	return a, nil
}

// Len returns how many degrees there are to choose from.
func (a DoPSet) Len() int {
	if a.set != nil {
		return len(a.set)
	}
	return int(a.most-a.least) + 1
}

// At returns the i-th allowed degree in ascending order.
func (a DoPSet) At(i int) int32 {
	if a.set != nil {
		return a.set[i]
	}
	return a.least + int32(i)
}

// Least returns the least allowed degree.
func (a DoPSet) Least() int32 { return a.least }

// Most returns the largest allowed degree.
func (a DoPSet) Most() int32 { return a.most }

// AtMost returns the largest allowed degree that is not above units, 0 if all are.
func (a DoPSet) AtMost(units int) int {
	switch {
	case units < int(a.least):
		return 0
	case a.set == nil:
		return min(units, int(a.most))
	}
	i, found := slices.BinarySearch(a.set, int32(min(units, UnitsMax)))
	if found {
		i++
	}
	return int(a.set[i-1])
}

// Contiguous reports whether all degrees between the least and the most are
// allowed.
func (a DoPSet) Contiguous() bool { return a.set == nil }

// Contains reports whether a degree is allowed.
func (a DoPSet) Contains(units int32) bool {
	if a.set != nil {
		_, ok := slices.BinarySearch(a.set, units)
		return ok
	}
	return a.least <= units && units <= a.most
}
