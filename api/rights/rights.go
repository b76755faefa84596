package rights

import (
	"slices"
	"strings"

	rotav1 "rota/api/gen/rota/v1"
)

// Verbs, from the least to the most.
const (
	Read    = "read"    // look at it
	Submit  = "submit"  // create it, use it, let it go on
	Cancel  = "cancel"  // end or delete what was submitted
	Operate = "operate" // change what belongs to all clients
)

// Any stands for every namespace, noun or verb.
const Any = "*"

// Access is the noun of tokens, policies and auth methods.
const Access = "access"

// nouns says of each noun whether it belongs to a namespace.
var nouns = map[string]bool{
	"action": true, "trajectory": true, "file": true, "snapshot": true, "class": true, "job": true, "turn": true, "migration": true, "rollout": true,
	"namespace": true, "policy": true,
	"worker": false, "reward": false, "node": false, "pool": false, "quota": false, "ledger": false, "engine": false,
	"residency": false, "cluster": false, Access: false,
}

var verbs = []string{Read, Submit, Cancel, Operate}

// Nouns returns the nouns there are, in order.
func Nouns() []string {
	var all []string
	for n := range nouns {
		all = append(all, n)
	}
	slices.Sort(all)
	return all
}

// Verbs returns the verbs there are, from the least to the most.
func Verbs() []string { return slices.Clone(verbs) }

// OfNamespace reports whether a noun exists, and whether what it stands for belongs to a namespace.
func OfNamespace(noun string) (namespaced, known bool) {
	namespaced, known = nouns[noun]
	return namespaced, known
}

// Set is what a caller may do. The zero Set allows nothing. It does not change.
type Set struct{ rules []*rotav1.AccessRule }

// NewSet returns what rules allow together. The rules must not be changed any more.
func NewSet(rules []*rotav1.AccessRule) Set { return Set{rules} }

// Everything allows all verbs on all nouns.
func Everything() Set {
	return Set{[]*rotav1.AccessRule{{Namespace: Any, Noun: Any, Verbs: []string{Any}}}}
}

// ClientDefault is what a client's certificate allows if no auth method says otherwise: all but
// what is for operators.
func ClientDefault() Set {
	var rules []*rotav1.AccessRule
	for _, noun := range Nouns() {
		if noun != Access {
			rules = append(rules, &rotav1.AccessRule{Namespace: Any, Noun: noun, Verbs: []string{Read, Submit, Cancel}})
		}
	}
	return Set{rules}
}

// Join returns what any of the sets allows.
func Join(sets ...Set) Set {
	var all Set
	for _, s := range sets {
		all.rules = append(all.rules, s.rules...)
	}
	return all
}

// Rules are those that the set is made of.
func (s Set) Rules() []*rotav1.AccessRule { return s.rules }

// Allows reports whether a verb on a noun is allowed in a namespace. Without a namespace it is
// about what belongs to none, or to all: only a rule for all namespaces allows that.
func (s Set) Allows(noun, verb, namespace string) bool {
	return slices.ContainsFunc(s.rules, func(r *rotav1.AccessRule) bool {
		return allows(r, noun, verb) && (r.Namespace == Any || namespace != "" && Match(r.Namespace, namespace))
	})
}

// AllowsSomewhere reports whether a verb on a noun is allowed in any namespace. For what belongs
// to no namespace that takes a rule for all.
func (s Set) AllowsSomewhere(noun, verb string) bool {
	if namespaced := nouns[noun]; !namespaced {
		return s.Allows(noun, verb, "")
	}
	return slices.ContainsFunc(s.rules, func(r *rotav1.AccessRule) bool { return allows(r, noun, verb) })
}

func allows(r *rotav1.AccessRule, noun, verb string) bool {
	return (r.Noun == Any || r.Noun == noun) && (slices.Contains(r.Verbs, verb) || slices.Contains(r.Verbs, Any))
}

// Match reports whether a name matches a pattern: the name itself, or a prefix followed by "*".
func Match(pattern, name string) bool {
	if prefix, ok := strings.CutSuffix(pattern, Any); ok {
		return strings.HasPrefix(name, prefix)
	}
	return pattern == name
}

// Algorithms are the signature algorithms of JWTs that may be allowed.
func Algorithms() []string { return []string{"RS256", "ES256", "EdDSA"} }
