//go:build !nextlevel

package fsm

import (
	logv1 "rota/api/gen/log/v1"
)

// nextLevels is how many feature levels such a build has more.
const nextLevels = 0

// isNext and nextVerb are of what a build for the fault suite has beyond the newest
// feature level; see next.go.
func isNext(*logv1.Command) bool { return false }

func (x *execution) nextVerb(*logv1.Command) *logv1.Result { return nil }
