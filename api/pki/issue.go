package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"time"
)

const (
	caLifetime   = 10 * 365 * 24 * time.Hour
	leafLifetime = 365 * 24 * time.Hour
	// clockSkew is how far another machine's clock may be behind ours.
	clockSkew = 5 * time.Minute

	caName = "ca"
)

// ErrExists: a file that would be written is there already. Nothing is ever
// replaced, since a lost CA key cannot be had again.
var ErrExists = errors.New("file exists already, and is not replaced: remove it first or use another folder")

var namePattern = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]{0,62}[a-z0-9])?$`)

// FilesIn are the files that Issue writes for the name.
func FilesIn(dir, name string) Files {
	return Files{
		CA:   filepath.Join(dir, caName+".pem"),
		Cert: filepath.Join(dir, name+".pem"),
		Key:  filepath.Join(dir, name+"-key.pem"),
	}
}

// NewCA makes a certificate authority, valid for ten years: ca.pem, which every
// process needs, and ca-key.pem, which only Issue needs and which is best kept
// off the cluster. The folder is made if necessary.
func NewCA(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make CA: %w", err)
	}
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: "rota CA"},
		NotAfter:              time.Now().Add(caLifetime),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		IsCA:                  true,
		BasicConstraintsValid: true,
		MaxPathLenZero:        true,
	}
	if err := writePair(FilesIn(dir, caName), template, nil); err != nil {
		return fmt.Errorf("make CA: %w", err)
	}
	return nil
}

// Issue makes a certificate and key for one process, valid for a year, as
// NAME.pem and NAME-key.pem beside the CA made by NewCA. The name is free: 1 to
// 64 of a-z, 0-9, '.' and '-'. Hosts are addresses or host names for tools that
// compare them, such as curl; rota itself does not. Loopback is always among
// them.
func Issue(dir string, role Role, name string, hosts ...string) error {
	if !slices.Contains(roles, role) {
		return fmt.Errorf("issue certificate: role %q is none of %q", role, roles)
	}
	if !namePattern.MatchString(name) || name == caName {
		return fmt.Errorf("issue certificate: name %q must be 1 to 64 of a-z, 0-9, '.' and '-', and not %q", name, caName)
	}
	ca, err := tls.LoadX509KeyPair(FilesIn(dir, caName).Cert, FilesIn(dir, caName).Key)
	if err != nil {
		return fmt.Errorf("issue certificate: load CA (make one with `rota tls init`): %w", err)
	}
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: name},
		NotAfter:              time.Now().Add(leafLifetime),
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		BasicConstraintsValid: true,
		URIs:                  []*url.URL{role.uri()},
	}
	if role != RoleClient {
		template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
		addHosts(template, append([]string{"localhost", "127.0.0.1", "::1", name}, hosts...))
	}
	if err := writePair(FilesIn(dir, name), template, &ca); err != nil {
		return fmt.Errorf("issue certificate for %q: %w", name, err)
	}
	return nil
}

func addHosts(template *x509.Certificate, hosts []string) {
	for _, h := range hosts {
		if ip := net.ParseIP(h); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, h)
		}
	}
}

// writePair makes a key and has the CA, or with none the key itself, sign the
// template. The key is written first and taken back if the certificate cannot
// be written.
func writePair(f Files, template *x509.Certificate, ca *tls.Certificate) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	// Unique without keeping count, and within the 20 octets of RFC 5280.
	if template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127)); err != nil {
		return err
	}
	if template.NotBefore.IsZero() {
		template.NotBefore = time.Now().Add(-clockSkew)
	}
	parent, signer := template, any(key)
	if ca != nil {
		parent, signer = ca.Leaf, ca.PrivateKey
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		return err
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	if err := writePEM(f.Key, "PRIVATE KEY", pkcs8, 0o600); err != nil {
		return err
	}
	if err := writePEM(f.Cert, "CERTIFICATE", cert, 0o644); err != nil {
		return errors.Join(err, os.Remove(f.Key))
	}
	return nil
}

// writePEM creates the file; one that is there already is ErrExists.
func writePEM(path, kind string, der []byte, mode os.FileMode) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s: %w", path, ErrExists)
	}
	if err != nil {
		return err
	}
	if err := errors.Join(pem.Encode(file, &pem.Block{Type: kind, Bytes: der}), file.Sync(), file.Close()); err != nil {
		return errors.Join(err, os.Remove(path))
	}
	return nil
}
