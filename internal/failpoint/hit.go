//go:build !faults

package failpoint

// Hit does nothing: this build has no failpoints.
func Hit(string) {}
