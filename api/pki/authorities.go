package pki

import (
	"crypto/x509"
	"fmt"
	"os"
)

// ReadAuthorities reads the certificates (PEM) of authorities that are not the cluster's own: of services
// that it calls, or of those who call a gateway.
func ReadAuthorities(file string) (*x509.CertPool, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	return Authorities(file, text)
}

// Authorities are those in the text of a file.
func Authorities(file string, text []byte) (*x509.CertPool, error) {
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s has no certificate in PEM", file)
	}
	return pool, nil
}
