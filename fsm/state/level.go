package state

import "fmt"

// Level is a feature level of the cluster: which verbs and fields the log may have, which
// tables and trailing fields the state may have, and which scheduler decides. It is
// state, and only a committed entry raises it, once every server knows the new level. So
// an upgrade of one server changes nothing for the others, and history keeps its meaning.
//
// What belongs to a level is never changed after a release had it: logs and snapshots of
// that level are read by it.
type Level uint32

// LevelMin is the oldest level whose logs and snapshots this build reads. Level 1 is that
// of all builds before there were levels: they decided differently.
const LevelMin Level = 2

// LevelResizing is the feature level from which running actions are resized, and engines may be
// declared.
const LevelResizing Level = 3

// Levels is how many levels this build knows, from LevelMin on.
const Levels = int(LevelMax-LevelMin) + 1

// Beyond is what a server stops with when it meets something of a feature level that it
// does not know, or no longer knows.
type Beyond struct {
	Level Level
	// Release introduced or last raised the level; empty if that is not known.
	Release string
	// Min and Max are the levels that this server knows.
	Min, Max Level
}

func (b *Beyond) Error() string {
	if b.Level < b.Min {
		return fmt.Sprintf("the data is of feature level %d, and this build knows levels %d to %d: "+
			"an older release has to raise the level, or a backup moves the state into a new cluster; see \"Upgrades\" in docs/operations.md", b.Level, b.Min, b.Max)
	}
	release := b.Release
	if release == "" {
		release = "the release that the other servers run"
	}
	return fmt.Sprintf("the cluster has feature level %d, and this build knows levels %d to %d: upgrade this server to %s, or newer",
		b.Level, b.Min, b.Max, release)
}

// CheckLevel returns a *Beyond unless a level is among those from LevelMin to max, or that of
// an empty state.
func CheckLevel(level Level, release string, max Level) error {
	if level < LevelMin && level > 0 || level > max { // 0: nothing has been committed yet
		return &Beyond{level, release, LevelMin, max}
	}
	return nil
}
