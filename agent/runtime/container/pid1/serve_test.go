package pid1

import (
	"errors"
	"net"
	"syscall"
	"testing"
)

// Too many open files do not end a sandbox.
func TestAFailureToAcceptPasses(t *testing.T) {
	answers := []error{syscall.EMFILE, syscall.ECONNABORTED, nil, syscall.ENFILE, nil, net.ErrClosed}
	served := 0
	err := acceptAll(func() (*net.UnixConn, error) {
		err := answers[0]
		answers = answers[1:]
		return nil, err
	}, func(*net.UnixConn) { served++ })
	if !errors.Is(err, net.ErrClosed) || served != 2 {
		t.Errorf("%d connections were served, and then %v", served, err)
	}
}
