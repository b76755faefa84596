package rpc

import (
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"

	"rota/api/share"
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

// SetCallsMax lets a server have fewer calls under way.
func SetCallsMax(s *Server, most int) { s.calls = share.New[string](most) }

// SetContentsMax lets a server have fewer calls with contents of files under way.
func SetContentsMax(s *Server, most int) { s.contents = share.New[string](most) }

// SetRoutesTick has a server look more often whether those who watch routes are told anything.
func SetRoutesTick(s *Server, every time.Duration) { s.routesTick = every }
