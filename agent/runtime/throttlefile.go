package runtime

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sys/unix"

	"rota/agent/plan"
)

// throttleVariable names, in the environment of an attempt that uses quotas, a file that is
// empty. What the attempt writes there says that a provider refused calls of it for their rate:
// the seconds that the provider asked to wait, or any other text if it did not say.
const throttleVariable = "ROTA_THROTTLE_FILE"

const throttleFile = "throttle"

// throttleBytesMax is how much of such a file is read.
const throttleBytesMax = 64

// throttleFiles are where attempts say that, and what they used (usageFile). Each has a folder
// of its own, which others cannot change: what is read are the files that were made.
type throttleFiles struct{ attemptDirs }

func newThrottleFiles(root *os.Root, log hclog.Logger) (*throttleFiles, error) {
	dirs, err := newAttemptDirs(root, throttleName, log)
	if err != nil {
		return nil, fmt.Errorf("make the folder of files that say what providers refuse: %w", err)
	}
	return &throttleFiles{dirs}, nil
}

// make makes the files of an attempt, which belong to its user, and returns the folder in which
// they are.
func (f *throttleFiles) make(k plan.Key, owner *userID) (dir string, err error) {
	if dir, err = f.add(k); err != nil {
		return "", fmt.Errorf("make the folder in which it may say what became of its quotas: %w", err)
	}
	for _, name := range []string{throttleFile, usageFile} {
		file := filepath.Join(f.of(k), name)
		if err = f.root.WriteFile(file, nil, 0o600); err == nil && owner != nil {
			err = f.root.Lchown(file, int(owner.uid), int(owner.gid))
		}
		if err != nil {
			return "", fmt.Errorf("make the file %s in which it may say what became of its quotas: %w", name, err)
		}
	}
	return dir, nil
}

// text returns what an attempt has written into one of its files, of the first bytes; nothing
// unless it is still a regular file.
func (f *throttleFiles) text(k plan.Key, name string, most int64) string {
	file, err := f.root.OpenFile(filepath.Join(f.of(k), name), os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return ""
	}
	defer file.Close()
	if st, err := file.Stat(); err != nil || !st.Mode().IsRegular() {
		return ""
	}
	text, err := io.ReadAll(io.LimitReader(file, most))
	if err != nil {
		return ""
	}
	return string(text)
}

// read returns what an attempt has said of refused calls.
func (f *throttleFiles) read(k plan.Key) (throttled bool, retryAfter time.Duration) {
	text := f.text(k, throttleFile, throttleBytesMax)
	return text != "", secondsOf(text)
}

// retryAfterMax bounds what is passed on: a pause is never as long.
const retryAfterMax = 24 * time.Hour

// secondsOf reads a number of seconds, 0 if it is none.
func secondsOf(text string) time.Duration {
	seconds, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
	if err != nil || !(seconds > 0) {
		return 0
	}
	return time.Duration(min(seconds, retryAfterMax.Seconds()) * float64(time.Second))
}
