//go:build !nvml

package inventory

import (
	"errors"
	"testing"
)

// TestWithoutNVML: who insists on GPUs is told that this binary cannot see any.
func TestWithoutNVML(t *testing.T) {
	if _, err := readGPUs(Options{GPUs: GPUsAll}); !errors.Is(err, ErrNoNVML) {
		t.Error(err)
	}
	if g, err := readGPUs(Options{}); g != nil || err != nil {
		t.Errorf("%+v, %v", g, err)
	}
}
