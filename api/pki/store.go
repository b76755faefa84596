package pki

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
)

// material is what the three files say, taken together.
type material struct {
	ca   *x509.CertPool
	cert *tls.Certificate
}

// stamp tells one version of the files from the next.
type stamp [3]struct {
	modified time.Time
	size     int64
}

// store keeps the material and reads it again when the files have changed.
type store struct {
	files Files

	mu   sync.Mutex
	seen stamp
	good material
	// failed is why the files as they were seen cannot be used, and tried when; nil: they are in use.
	failed error
	tried  time.Time
}

// retryAfter is how long files that could not be used are left alone while they look the same. What is
// in the way may end without a change of them: a mode that is mended, a clock that is behind, a
// process that may open no more files.
const retryAfter = 10 * time.Second

// newStore reads the files; every later failure keeps what was good last.
func newStore(f Files) (*store, error) {
	if f.CA == "" || (f.Cert == "") != (f.Key == "") {
		return nil, ErrIncomplete
	}
	s := &store{files: f}
	var err error
	if s.seen, err = f.stamp(); err != nil {
		return nil, err
	}
	if s.good, err = f.load(); err != nil {
		return nil, err
	}
	return s, nil
}

// current returns the newest material that could be read. It is asked once or
// twice a handshake, so it may look at the files each time.
func (s *store) current() material {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, err := s.files.stamp()
	if now == s.seen && (s.failed == nil || time.Since(s.tried) < retryAfter) {
		return s.good
	}
	s.seen, s.tried = now, time.Now()
	var fresh material
	if err == nil {
		fresh, err = s.files.load()
	}
	if err != nil {
		// Half of a renewal, or a mistake: the old certificate is better than none.
		if s.failed == nil || s.failed.Error() != err.Error() { // once, not at every look
			hclog.L().Warn("TLS files changed and cannot be used, the old ones stay in use", "error", err)
		}
		s.failed = err
		return s.good
	}
	s.failed = nil
	hclog.L().Info("read changed TLS files", "cert", s.files.Cert)
	s.good = fresh
	return s.good
}

// stamp looks at the files without reading them. It is zero with an error.
func (f Files) stamp() (stamp, error) {
	var st stamp
	for i, path := range []string{f.CA, f.Cert, f.Key} {
		if path == "" {
			continue // a client without a certificate
		}
		info, err := os.Stat(path)
		if err != nil {
			return stamp{}, fmt.Errorf("TLS files: %w", err)
		}
		st[i].modified, st[i].size = info.ModTime(), info.Size()
	}
	return st, nil
}

// load reads and checks the files.
func (f Files) load() (material, error) {
	pem, err := os.ReadFile(f.CA)
	if err != nil {
		return material{}, fmt.Errorf("TLS files: %w", err)
	}
	ca := x509.NewCertPool()
	if !ca.AppendCertsFromPEM(pem) {
		return material{}, fmt.Errorf("TLS files: %s holds no CA certificate in PEM form", f.CA)
	}
	if f.Cert == "" {
		return material{ca: ca}, nil
	}
	cert, err := loadPair(f)
	if err != nil {
		return material{}, fmt.Errorf("TLS files: %w", err)
	}
	// What peers would refuse is refused here, where the reason can be read.
	if _, err := certRole(cert.Leaf); err != nil {
		return material{}, fmt.Errorf("TLS files: %s: %w", f.Cert, err)
	}
	chain, err := parseChain(cert.Certificate)
	if err == nil {
		err = verifyChain(ca, chain, x509.ExtKeyUsageAny)
	}
	if err != nil {
		return material{}, fmt.Errorf("TLS files: %s: %w", f.Cert, err)
	}
	return material{ca: ca, cert: &cert}, nil
}

// loadPair reads a certificate and its key.
func loadPair(f Files) (tls.Certificate, error) {
	cert, err := os.ReadFile(f.Cert)
	if err != nil {
		return tls.Certificate{}, err
	}
	key, err := ReadSecret(f.Key)
	if err != nil {
		return tls.Certificate{}, err
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("%s with %s: %w", f.Cert, f.Key, err)
	}
	return pair, nil
}

func parseChain(der [][]byte) ([]*x509.Certificate, error) {
	var chain []*x509.Certificate
	for _, d := range der {
		c, err := x509.ParseCertificate(d)
		if err != nil {
			return nil, err
		}
		chain = append(chain, c)
	}
	return chain, nil
}
