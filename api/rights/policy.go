package rights

import (
	"fmt"
	"slices"
	"strings"

	rotav1 "rota/api/gen/rota/v1"
)

// Bounds of a policy.
const (
	RulesMax      = 256
	PolicyTextMax = 64 << 10 // bytes of its text form
	nameMax       = 128
)

// Parse reads the text form of a policy. Lines "in PATTERN" begin a block; each other line
// is a noun and its verbs in the namespaces of the block. "#" begins a comment, and empty lines
// mean nothing:
//
//	# What the search team may do.
//	in search-*
//	  action read submit cancel
//	  trajectory *
//	in *
//	  node read
//
// The error names the line and what to do.
func Parse(text string) ([]*rotav1.AccessRule, error) {
	if len(text) > PolicyTextMax {
		return nil, fmt.Errorf("the policy has %d bytes; at most %d are allowed: split it", len(text), PolicyTextMax)
	}
	var rules []*rotav1.AccessRule
	namespace := ""
	for i, line := range strings.Split(text, "\n") {
		line, _, _ = strings.Cut(line, "#")
		words := strings.Fields(line)
		switch {
		case len(words) == 0:
			continue
		case words[0] == "in" && len(words) == 2:
			namespace = words[1]
			continue
		case namespace == "":
			return nil, fmt.Errorf("line %d: %q is before the first line of the form: in PATTERN", i+1, strings.TrimSpace(line))
		}
		r := &rotav1.AccessRule{Namespace: namespace, Noun: words[0], Verbs: words[1:]}
		if err := CheckRule(r); err != nil {
			return nil, fmt.Errorf("line %d: %w", i+1, err)
		}
		rules = append(rules, r)
	}
	return rules, checkCount(rules)
}

// Format writes rules so that Parse reads them.
func Format(rules []*rotav1.AccessRule) string {
	var b strings.Builder
	namespace := ""
	for _, r := range rules {
		if r.Namespace != namespace {
			namespace = r.Namespace
			fmt.Fprintf(&b, "in %s\n", namespace)
		}
		fmt.Fprintf(&b, "  %s %s\n", r.Noun, strings.Join(r.Verbs, " "))
	}
	return b.String()
}

// Check says what is wrong with the rules of a policy; nil if nothing is.
func Check(rules []*rotav1.AccessRule) error {
	for i, r := range rules {
		if err := CheckRule(r); err != nil {
			return fmt.Errorf("rule %d: %w", i+1, err)
		}
	}
	return checkCount(rules)
}

func checkCount(rules []*rotav1.AccessRule) error {
	if len(rules) > RulesMax {
		return fmt.Errorf("the policy has %d rules; at most %d are allowed: split it", len(rules), RulesMax)
	}
	return nil
}

// CheckRule says what is wrong with a rule; nil if nothing is.
func CheckRule(r *rotav1.AccessRule) error {
	if err := CheckPattern(r.GetNamespace()); err != nil {
		return fmt.Errorf("the namespace %w", err)
	}
	if _, known := nouns[r.Noun]; !known && r.Noun != Any {
		return fmt.Errorf("there is no noun %q; there are: %s", r.Noun, strings.Join(Nouns(), ", "))
	}
	if namespaced, known := nouns[r.Noun]; known && !namespaced && r.Namespace != Any {
		return fmt.Errorf("the noun %q belongs to no namespace: put it under: in *", r.Noun)
	}
	if len(r.Verbs) == 0 || len(r.Verbs) > len(verbs) {
		return fmt.Errorf("the noun %q needs verbs: %s, or *", r.Noun, strings.Join(verbs, ", "))
	}
	for _, v := range r.Verbs {
		if v != Any && !slices.Contains(verbs, v) {
			return fmt.Errorf("there is no verb %q; there are: %s, or *", v, strings.Join(verbs, ", "))
		}
	}
	return nil
}

// CheckPattern says what is wrong with a pattern of names; nil if nothing is.
func CheckPattern(pattern string) error {
	name := strings.TrimSuffix(pattern, Any)
	if pattern == "" || len(pattern) > nameMax || strings.ContainsFunc(name, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-' && r != '.'
	}) {
		return fmt.Errorf("pattern %q must be a name of a-z, 0-9, '-' and '.', a prefix followed by '*', or '*'", pattern)
	}
	return nil
}
