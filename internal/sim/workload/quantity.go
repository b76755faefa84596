package workload

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"
)

// Quantity is a whole number: nanoseconds, bytes, parts per million or a count.
// In a file it is a number, or a string with a unit: "1.5s", "4GiB", "2.4TB".
type Quantity int64

// quantityMax bounds every figure, so that sums of a million of them and
// products with parts per million stay within what is computed with.
const quantityMax = 1 << 53

var sizes = []struct {
	suffix string
	bytes  int64
}{
	{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40},
	{"MB", 1_000_000}, {"GB", 1_000_000_000}, {"TB", 1_000_000_000_000},
}

// UnmarshalJSON reads a number or a string with a unit.
func (q *Quantity) UnmarshalJSON(text []byte) error {
	var s string
	if err := json.Unmarshal(text, &s); err != nil {
		var n int64
		if err := json.Unmarshal(text, &n); err != nil {
			return fmt.Errorf("%s is neither a whole number nor a string such as \"1.5s\" or \"4GiB\"", text)
		}
		return q.set(n, string(text))
	}
	for _, size := range sizes {
		if number, ok := strings.CutSuffix(s, size.suffix); ok {
			n, err := parseDecimal(number, size.bytes)
			if err != nil {
				return fmt.Errorf("size %q: %w", s, err)
			}
			return q.set(n, s)
		}
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		return fmt.Errorf("%q is neither a duration such as \"1.5s\" nor a size such as \"4GiB\"", s)
	}
	return q.set(int64(d), s)
}

func (q *Quantity) set(n int64, text string) error {
	if n < 0 || n > quantityMax {
		return fmt.Errorf("%s is not between 0 and %d", text, int64(quantityMax))
	}
	*q = Quantity(n)
	return nil
}

// Why a decimal is refused.
var (
	errDecimal  = errors.New("not a decimal number such as 12.5")
	errTooLarge = errors.New("too large")
)

// parseDecimal returns a non-negative decimal number times scale, rounded down,
// without ever being a floating-point number.
func parseDecimal(s string, scale int64) (int64, error) {
	whole, fraction, _ := strings.Cut(s, ".")
	if whole == "" {
		return 0, errDecimal
	}
	var n int64
	for _, digit := range whole {
		if digit < '0' || digit > '9' {
			return 0, errDecimal
		}
		if n > math.MaxInt64/scale/10-1 {
			return 0, errTooLarge
		}
		n = n*10 + int64(digit-'0')
	}
	n *= scale
	unit := scale
	for _, digit := range fraction {
		if digit < '0' || digit > '9' {
			return 0, errDecimal
		}
		unit /= 10
		n += int64(digit-'0') * unit
	}
	return n, nil
}
