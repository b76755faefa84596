package runtime

import "errors"

// WithoutLauncher makes this machine one that cannot execute the launcher.
func WithoutLauncher() {
	launcherFile = func() (int, error) { return -1, errors.New("no launcher, as the test wants it") }
}
