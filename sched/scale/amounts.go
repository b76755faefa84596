package scale

import (
	"errors"
	"fmt"
	"slices"
)

// UnitsMax bounds amounts of a key resource.
const UnitsMax = 1 << 20

// amountsMax bounds how many amounts one action may choose from.
const amountsMax = 4096

// Amounts are the amounts of the key resource that an action can use (§4.1): all
// from the least to the most, or a set of some.
type Amounts struct {
	least, most int32
	set         []int32 // nil if all between are allowed
}

// Range allows every amount from least to most.
func Range(least, most int32) (Amounts, error) {
	a := Amounts{least: least, most: most}
	switch {
	case least < 1:
		return Amounts{}, fmt.Errorf("the least amount is %d, and must be at least 1", least)
	case most < least:
		return Amounts{}, fmt.Errorf("the most is %d, which is below the least, %d", most, least)
	case most > UnitsMax:
		return Amounts{}, fmt.Errorf("the most is %d, and may be at most %d", most, UnitsMax)
	case a.Len() > amountsMax:
		return Amounts{}, fmt.Errorf("%d amounts to choose from, at most %d are allowed", a.Len(), amountsMax)
	}
	return a, nil
}

// Set allows the amounts named, which must ascend. One without gaps is a range.
func Set(amounts ...int32) (Amounts, error) {
	n := len(amounts)
	if n == 0 {
		return Amounts{}, errors.New("the set of allowed amounts is empty")
	}
	for i, u := range amounts {
		switch {
		case u < 1:
			return Amounts{}, fmt.Errorf("an allowed amount is %d, and must be at least 1", u)
		case u > UnitsMax:
			return Amounts{}, fmt.Errorf("an allowed amount is %d, and may be at most %d", u, UnitsMax)
		case i > 0 && u <= amounts[i-1]:
			return Amounts{}, fmt.Errorf("allowed amounts must ascend: %d comes after %d", u, amounts[i-1])
		}
	}
	if n > amountsMax {
		return Amounts{}, fmt.Errorf("%d amounts to choose from, at most %d are allowed", n, amountsMax)
	}
	a := Amounts{least: amounts[0], most: amounts[n-1]}
	if a.Len() != n {
		a.set = slices.Clone(amounts)
	}
	return a, nil
}

// Len returns how many amounts there are to choose from.
func (a Amounts) Len() int {
	if a.set != nil {
		return len(a.set)
	}
	return int(a.most-a.least) + 1
}

// At returns the i-th allowed amount in ascending order.
func (a Amounts) At(i int) int32 {
	if a.set != nil {
		return a.set[i]
	}
	return a.least + int32(i)
}

// Least returns the least allowed amount.
func (a Amounts) Least() int32 { return a.least }

// Most returns the largest allowed amount.
func (a Amounts) Most() int32 { return a.most }

// AtMost returns the largest allowed amount that is not above units, 0 if all are.
func (a Amounts) AtMost(units int) int {
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

// Contiguous reports whether all amounts between the least and the most are
// allowed.
func (a Amounts) Contiguous() bool { return a.set == nil }

// Contains reports whether an amount is allowed.
func (a Amounts) Contains(units int32) bool {
	if a.set != nil {
		_, ok := slices.BinarySearch(a.set, units)
		return ok
	}
	return a.least <= units && units <= a.most
}
