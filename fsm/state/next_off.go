//go:build !nextlevel

package state

// LevelMax is the newest level that this build knows, and that a new cluster has.
const LevelMax Level = 3

// nextTables, nextMeta and nextState are what a build for the fault suite has beyond the
// newest level; see next.go.
var nextTables []tableDef

type (
	nextMeta  struct{}
	nextState struct{} //nolint:unused // embedded in State for the other build
)

func (nextMeta) code(*codec) {}
