package main

import (
	"crypto/x509"
	"os"
	"os/exec"
	"testing"
)

// TestAuthoritiesOfMachinesWithoutAny: the program trusts those that are in it, as in an image that has
// nothing else.
func TestAuthoritiesOfMachinesWithoutAny(t *testing.T) {
	if os.Getenv("ROTA_TEST_ROOTS") == "" {
		child := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^TestAuthoritiesOfMachinesWithoutAny$")
		child.Env = append(os.Environ(), "ROTA_TEST_ROOTS=1", "SSL_CERT_FILE=/nonexistent", "SSL_CERT_DIR=/nonexistent")
		if out, err := child.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	pool, err := x509.SystemCertPool()
	if err != nil || pool.Equal(x509.NewCertPool()) {
		t.Errorf("no authority is trusted: %v", err)
	}
}
