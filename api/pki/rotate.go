package pki

import (
	"bytes"
	"cmp"
	"crypto"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// A CA is replaced in steps between which every process trusts the certificates of every
// other one:
//
//  1. AddCA puts a second CA into ca.pem. That file goes to all machines.
//  2. UseCA signs with the new CA from then on. Renew makes new certificates, which go to
//     the machines of their processes.
//  3. RemoveCA takes the old CA out of ca.pem, which goes to all machines again.
//
// The CA that signs is the one of ca.pem that ca-key.pem belongs to, so each step is one
// rename, and a crash leaves the step done or not done.

// Errors of a change of CA, one for each fact.
var (
	// ErrAdded: a new CA was added and does not sign yet.
	ErrAdded = errors.New("a new certificate authority was added and is not in use yet: `rota tls ca use` has it sign")
	// ErrNotAdded: there is no new CA that could be used.
	ErrNotAdded = errors.New("no certificate authority waits to be used: `rota tls ca add` makes one")
	// ErrOneCA: there is no old CA that could be removed.
	ErrOneCA = errors.New("there is only one certificate authority, and it signs")
	// ErrStillUsed: certificates of the old CA have not been renewed.
	ErrStillUsed = errors.New("certificates of the old certificate authority are in use")
)

// Authority is what NewCA and AddCA put into a CA's certificate.
type Authority struct {
	// Name is the common name: "rota CA" if empty.
	Name string
	// Lifetime is ten years if it is 0.
	Lifetime time.Duration
}

func (a Authority) template() *x509.Certificate {
	return &x509.Certificate{
		Subject:               pkix.Name{CommonName: cmp.Or(a.Name, "rota CA")},
		NotAfter:              time.Now().Add(cmp.Or(a.Lifetime, caLifetime)),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		IsCA:                  true,
		BasicConstraintsValid: true,
		MaxPathLenZero:        true,
	}
}

// nextKey is the key of a CA that was added and does not sign yet.
func nextKey(dir string) string { return filepath.Join(dir, "ca-next-key.pem") }

// AddCA makes a second CA and adds it to ca.pem, behind the one that signs.
func AddCA(dir string, a Authority) error {
	if err := addCA(dir, a); err != nil {
		return fmt.Errorf("add CA: %w", err)
	}
	return nil
}

func addCA(dir string, a Authority) error {
	if _, err := loadCA(dir); err != nil {
		return err
	}
	bundle, err := readCertificates(FilesIn(dir, caName).CA)
	if err != nil {
		return err
	}
	switch waits, err := waiting(dir); {
	case err != nil:
		return err
	case waits:
		return ErrAdded
	}
	// Of an attempt that was interrupted before the CA was in ca.pem:
	if err := os.Remove(nextKey(dir)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	fresh := Files{Cert: filepath.Join(dir, "ca-next.pem.new"), Key: nextKey(dir)}
	if err := os.Remove(fresh.Cert); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := writePair(fresh, a.template(), nil); err != nil {
		return err
	}
	added, err := readCertificates(fresh.Cert)
	if err == nil {
		err = writeBundle(dir, append(bundle, added...))
	}
	return errors.Join(err, os.Remove(fresh.Cert))
}

// UseCA signs with the CA that AddCA made from now on. The key of the old one is gone
// then: it is not needed any more.
func UseCA(dir string) error {
	switch waits, err := waiting(dir); {
	case err != nil:
		return fmt.Errorf("use CA: %w", err)
	case !waits:
		return fmt.Errorf("use CA: %w", ErrNotAdded)
	}
	if err := rename(nextKey(dir), FilesIn(dir, caName).Key); err != nil {
		return fmt.Errorf("use CA: %w", err)
	}
	return nil
}

// waiting reports whether a CA was added that does not sign yet: ca.pem has it, and its key is
// there. A key alone is of an AddCA that was interrupted.
func waiting(dir string) (bool, error) {
	_, err := authority(dir, nextKey(dir))
	if errors.Is(err, errNoAuthority) {
		return false, nil
	}
	if _, statErr := os.Stat(nextKey(dir)); errors.Is(statErr, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// RemoveCA leaves the CA that signs alone in ca.pem. ErrStillUsed: a certificate in the
// folder that has not expired is of another one.
func RemoveCA(dir string) error {
	if err := removeCA(dir); err != nil {
		return fmt.Errorf("remove CA: %w", err)
	}
	return nil
}

func removeCA(dir string) error {
	switch waits, err := waiting(dir); {
	case err != nil:
		return err
	case waits:
		return ErrAdded
	}
	ca, err := loadCA(dir)
	if err != nil {
		return err
	}
	bundle, err := readCertificates(FilesIn(dir, caName).CA)
	if err != nil {
		return err
	}
	if len(bundle) == 1 {
		return ErrOneCA
	}
	issued, err := Issued(dir)
	if err != nil {
		return err
	}
	var old []string
	for _, c := range issued {
		if time.Now().Before(c.NotAfter) && c.CheckSignatureFrom(ca.Leaf) != nil {
			old = append(old, c.Name)
		}
	}
	if len(old) > 0 {
		return fmt.Errorf("%w: renew and install %s", ErrStillUsed, strings.Join(old, ", "))
	}
	return writeBundle(dir, []*x509.Certificate{ca.Leaf})
}

// IssuedCertificate is a certificate in the folder of an authority.
type IssuedCertificate struct {
	*x509.Certificate
	// Name is that of its file.
	Name string
	// Role is empty if the certificate names none, or more than one.
	Role Role
}

// Issued returns the certificates in the folder of an authority, by name. Those of the
// authority itself are not among them.
func Issued(dir string) ([]IssuedCertificate, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.pem"))
	if err != nil {
		return nil, err
	}
	var issued []IssuedCertificate
	for _, path := range paths { // Glob sorts them
		name := strings.TrimSuffix(filepath.Base(path), ".pem")
		if name == caName || strings.HasSuffix(name, "-key") {
			continue
		}
		certs, err := readCertificates(path)
		if err != nil {
			return nil, err
		}
		role, _ := certRole(certs[0]) // without one it is of a CA that is not rota's
		issued = append(issued, IssuedCertificate{Certificate: certs[0], Name: name, Role: role})
	}
	return issued, nil
}

// Trusted returns the CAs in the file, and which of them signs for the folder: -1 if the
// folder has no key of any.
func Trusted(dir string) (cas []*x509.Certificate, signs int, err error) {
	if cas, err = readCertificates(FilesIn(dir, caName).CA); err != nil {
		return nil, -1, err
	}
	signs = -1
	if ca, err := loadCA(dir); err == nil {
		for i, c := range cas {
			if c.Equal(ca.Leaf) {
				signs = i
			}
		}
	}
	return cas, signs, nil
}

// Fingerprint is the first 16 hexadecimal digits of the SHA-256 of a certificate.
func Fingerprint(c *x509.Certificate) string {
	sum := sha256.Sum256(c.Raw)
	return hex.EncodeToString(sum[:8])
}

// loadCA reads the CA that signs.
func loadCA(dir string) (tls.Certificate, error) {
	ca, err := authority(dir, FilesIn(dir, caName).Key)
	if err != nil {
		return ca, fmt.Errorf("load CA (make one with `rota tls init`): %w", err)
	}
	return ca, nil
}

// errNoAuthority: a key belongs to no CA.
var errNoAuthority = errors.New("no certificate for a key")

// authority finds the CA in ca.pem that a key belongs to.
func authority(dir, keyFile string) (tls.Certificate, error) {
	key, err := ReadSecret(keyFile)
	if err != nil {
		return tls.Certificate{}, err
	}
	path := FilesIn(dir, caName).CA
	cas, err := readCertificates(path)
	if err != nil {
		return tls.Certificate{}, err
	}
	for _, c := range cas {
		pair, err := tls.X509KeyPair(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw}), key)
		if err != nil {
			continue // of another CA
		}
		if _, ok := pair.PrivateKey.(crypto.Signer); ok {
			return pair, nil
		}
	}
	return tls.Certificate{}, fmt.Errorf("%w: none in %s belongs to %s", errNoAuthority, path, keyFile)
}

// readCertificates reads the certificates in a file: at least one.
func readCertificates(path string) (certs []*x509.Certificate, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			continue
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		certs = append(certs, c)
	}
	if len(certs) == 0 {
		return nil, fmt.Errorf("%s holds no certificate in PEM form", path)
	}
	return certs, nil
}

// writeBundle replaces ca.pem by a rename.
func writeBundle(dir string, cas []*x509.Certificate) error {
	var text bytes.Buffer
	for _, c := range cas {
		if err := pem.Encode(&text, &pem.Block{Type: "CERTIFICATE", Bytes: c.Raw}); err != nil {
			return err
		}
	}
	return ReplaceFile(FilesIn(dir, caName).CA, text.Bytes(), 0o644)
}

// freshMark is in the names of files that ReplaceFile has not renamed yet, before freshDigits letters
// and digits of rand.Text.
const (
	freshMark   = ".new-"
	freshDigits = 26
)

// leftoverAge is how old such a file is before it counts as left by a write that was interrupted: a
// write takes milliseconds, and another process may be in one.
const leftoverAge = time.Hour

// ReplaceFile writes a file beside the path, to the disk, and renames it onto the path: a
// reader finds the old content or the new. Processes that replace the same file at once do not
// disturb each other, and the last one counts.
func ReplaceFile(path string, content []byte, mode fs.FileMode) error {
	removeLeftovers(path)
	fresh := path + freshMark + rand.Text()
	file, err := os.OpenFile(fresh, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = file.Write(content)
	if err := errors.Join(err, file.Sync(), file.Close()); err != nil {
		return errors.Join(err, os.Remove(fresh))
	}
	if err := rename(fresh, path); err != nil {
		_ = os.Remove(fresh) // it is there only if it was not renamed
		return err
	}
	return nil
}

// removeLeftovers removes what interrupted writes of a file have left, also under the name of earlier
// releases. One that cannot be removed keeps nobody from writing.
func removeLeftovers(path string) {
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		return
	}
	name := filepath.Base(path)
	for _, e := range entries {
		digits, ours := strings.CutPrefix(e.Name(), name+freshMark)
		if ours = ours && len(digits) == freshDigits; !ours && e.Name() != name+".new" {
			continue
		}
		if info, err := e.Info(); err == nil && info.Mode().IsRegular() && time.Since(info.ModTime()) > leftoverAge {
			_ = os.Remove(filepath.Join(filepath.Dir(path), e.Name()))
		}
	}
}

// rename renames a file for good: it is done after a loss of power, too.
func rename(from, to string) error {
	if err := os.Rename(from, to); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(to))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
