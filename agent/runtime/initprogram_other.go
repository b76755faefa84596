//go:build !amd64 && !arm64

package runtime

import (
	"errors"
	goruntime "runtime"
)

func initProgram() (int, error) { return -1, errNotBuilt }

func launchProgram() (int, error) { return -1, errNotBuilt }

var errNotBuilt = errors.New("not built for " + goruntime.GOARCH)
