package settle

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

const (
	// TextBytesMax bounds the text of a rule.
	TextBytesMax = 256
	// UnitsMax bounds what one call may have used, as limits are.
	UnitsMax = 1_000_000_000
	// factorMax bounds factors.
	factorMax = 1_000_000_000
)

// Usual is the rule for the usage of the APIs of OpenAI and Anthropic, and of what is
// compatible with them: all tokens. It also reads answers that come as events.
const Usual = "usage"

// usual are the ways in which those say it.
var usual = []way{
	{{"usage", "total_tokens"}},
	{{"response", "usage", "total_tokens"}},
	{{"usage", "prompt_tokens"}, {"usage", "completion_tokens"}},
	{{"usage", "input_tokens"}, {"usage", "output_tokens"}},
	{{"message", "usage", "input_tokens"}, {"usage", "output_tokens"}},
}

// Rule says where an answer has what a call used.
type Rule struct {
	ways   []way // the first that an answer has counts
	factor float64
}

// way is paths whose values are added up.
type way []path

// path leads into JSON: names of fields, or numbers in lists from 0 on.
type path []string

// Parse reads a rule: Usual, or a path such as "usage.total_tokens", or a sum of paths with a
// plus between them; and with an asterisk and a factor behind it, "usage.cost*100".
func Parse(text string) (Rule, error) {
	switch {
	case text == "":
		return Rule{}, errors.New("the rule is empty: write usage, or a path such as usage.total_tokens")
	case len(text) > TextBytesMax:
		return Rule{}, fmt.Errorf("the rule has %d bytes, and may have at most %d", len(text), TextBytesMax)
	}
	paths, times, scaled := strings.Cut(text, "*")
	r := Rule{factor: 1}
	if scaled {
		f, err := strconv.ParseFloat(times, 64)
		if err != nil || !(f > 0 && f <= factorMax) {
			return Rule{}, fmt.Errorf("the factor %q is not a number above 0 and up to %d", times, factorMax)
		}
		r.factor = f
	}
	if paths == Usual {
		r.ways = usual
		return r, nil
	}
	var sum way
	for _, p := range strings.Split(paths, "+") {
		names := strings.Split(p, ".")
		if slices.Contains(names, "") || strings.ContainsFunc(p, func(c rune) bool { return unicode.IsSpace(c) || !unicode.IsPrint(c) }) {
			return Rule{}, fmt.Errorf("%q is not a path: write names with dots between them, such as usage.total_tokens", p)
		}
		sum = append(sum, names)
	}
	r.ways = []way{sum}
	return r, nil
}

// units turns what was found into units, rounded up.
func (r Rule) units(values []float64) uint64 {
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	sum *= r.factor
	// A product such as 0.07 * 100 is a little more than it should be.
	return uint64(min(math.Ceil(sum-sum*1e-12), UnitsMax))
}
