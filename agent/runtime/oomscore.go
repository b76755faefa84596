package runtime

import (
	"os"
	"strconv"
	"strings"
)

// attemptOOMScore makes the kernel, when the machine is out of memory, end attempts
// before anything else. The supervisor's own score may protect it, and a child inherits
// the score of its parent.
const attemptOOMScore = 500

const oomScorePath = "/proc/self/oom_score_adj"

// oomScore is the supervisor's own score; empty if it cannot be read.
type oomScore string

func ownOOMScore() oomScore {
	b, err := os.ReadFile(oomScorePath)
	if err != nil {
		return ""
	}
	own := strings.TrimSpace(string(b))
	if n, err := strconv.Atoi(own); err != nil || n >= attemptOOMScore {
		return "" // attempts go as early as they should
	}
	return oomScore(own)
}

// raise gives this process the score of attempts for as long as a fork takes, so that
// no process of an attempt ever has another one. The function that is returned puts the
// own one back.
func (s oomScore) raise() (lower func()) {
	if s == "" || writeFile(oomScorePath, strconv.Itoa(attemptOOMScore)) != nil {
		return func() {}
	}
	return func() {
		// It was allowed before, and is again: the kernel remembers the lowest score.
		_ = writeFile(oomScorePath, string(s))
	}
}
