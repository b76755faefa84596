package rpc

import (
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// Right is what a call needs, for tests of this package from outside.
type Right struct {
	Noun, Verb string
	Self       bool
}

// RequiredRights are those of all calls.
func RequiredRights() map[string]Right {
	all := map[string]Right{}
	for path, r := range requiredRights {
		all[path] = Right{r.noun, r.verb, r.self}
	}
	return all
}

// Calls are the methods of all calls.
func Calls() map[string]protoreflect.MethodDescriptor { return calls() }

// SetRoutesTick has a server look more often whether those who watch routes are told anything.
func SetRoutesTick(s *Server, every time.Duration) { s.routesTick = every }
