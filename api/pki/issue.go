package pki

import (
	"cmp"
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
	"strings"
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

// Patterns have no bounds on lengths: those of up to 252 repetitions would cost each start of a
// process some milliseconds.
var (
	namePattern = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$`)
	// hostPattern is looser than any DNS name has to be.
	hostPattern = regexp.MustCompile(`^(\*\.)?[A-Za-z0-9_]([A-Za-z0-9._-]*[A-Za-z0-9])?$`)
)

const (
	nameBytesMax = 64
	hostBytesMax = 253
)

// FilesIn are the files that Issue writes for the name.
func FilesIn(dir, name string) Files {
	return Files{
		CA:   filepath.Join(dir, caName+".pem"),
		Cert: filepath.Join(dir, name+".pem"),
		Key:  filepath.Join(dir, name+"-key.pem"),
	}
}

// NewCA makes a certificate authority: ca.pem, which every process needs, and
// ca-key.pem, which only Issue needs and which is best kept off the cluster. The folder
// is made if necessary.
func NewCA(dir string) error { return NewAuthority(dir, Authority{}) }

// NewAuthority is NewCA with all that can be said.
func NewAuthority(dir string, a Authority) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make CA: %w", err)
	}
	if err := writePair(FilesIn(dir, caName), a.template(), nil); err != nil {
		return fmt.Errorf("make CA: %w", err)
	}
	return nil
}

// Certificate is what Issue puts into one.
type Certificate struct {
	Role Role
	// Name is free: 1 to 64 of a-z, 0-9, '.' and '-'.
	Name string
	// Hosts are addresses or host names for tools that compare them, such as curl; rota
	// itself does not. Loopback and Name are always among those of the roles that are
	// dialed, server and agent; the others have none.
	Hosts []string
	// Lifetime is a year if it is 0.
	Lifetime time.Duration
}

// Issue makes a certificate and key for one process, valid for a year, as NAME.pem and
// NAME-key.pem beside the CA made by NewCA.
func Issue(dir string, role Role, name string, hosts ...string) error {
	return IssueCertificate(dir, Certificate{Role: role, Name: name, Hosts: hosts})
}

// IssueCertificate is Issue with all that can be said.
func IssueCertificate(dir string, c Certificate) error {
	if err := sign(dir, c, writePair); err != nil {
		return fmt.Errorf("issue certificate for %q: %w", c.Name, err)
	}
	return nil
}

// Renewal is what Renew changes.
type Renewal struct {
	// Lifetime is that of the old certificate if it is 0.
	Lifetime time.Duration
	// Hosts replace those of the old certificate, unless there are none.
	Hosts []string
}

// Renew replaces the certificate of a name and its key by new ones with the same role,
// hosts and lifetime, but for what the renewal changes. The CA that signs now signs it.
// Processes that use the files notice. The old certificate is valid as long as it was.
func Renew(dir, name string, r Renewal) error {
	old, err := renewable(FilesIn(dir, name))
	if err != nil {
		return fmt.Errorf("renew certificate (make one with `rota tls issue`): %w", err)
	}
	role, err := certRole(old.Leaf)
	if err != nil {
		return fmt.Errorf("renew certificate of %q: %w", name, err)
	}
	c := Certificate{Role: role, Name: name, Hosts: r.Hosts, Lifetime: r.Lifetime}
	if len(r.Hosts) == 0 {
		c.Hosts = hostsOf(old.Leaf)
	}
	if r.Lifetime == 0 {
		c.Lifetime = old.Leaf.NotAfter.Sub(old.Leaf.NotBefore) - clockSkew
	}
	if err := sign(dir, c, replacePair); err != nil {
		return fmt.Errorf("renew certificate of %q: %w", name, err)
	}
	return nil
}

// renewable loads a pair. Of a renewal that was interrupted after it had replaced the key, the
// certificate of that is taken.
func renewable(f Files) (tls.Certificate, error) {
	pair, err := loadPair(f)
	if err == nil {
		return pair, nil
	}
	fresh := Files{CA: f.CA, Cert: f.Cert + ".new", Key: f.Key}
	if pair, freshErr := loadPair(fresh); freshErr == nil {
		return pair, rename(fresh.Cert, f.Cert)
	}
	return pair, err
}

// sign makes a certificate and has it written.
func sign(dir string, c Certificate, write func(Files, *x509.Certificate, *tls.Certificate) error) error {
	if !slices.Contains(roles, c.Role) {
		return fmt.Errorf("role %q is none of %q", c.Role, roles)
	}
	if len(c.Name) > nameBytesMax || !namePattern.MatchString(c.Name) || c.Name == caName || strings.HasSuffix(c.Name, "-key") {
		return fmt.Errorf("name %q must be 1 to 64 of a-z, 0-9, '.' and '-', not %q, and not end in -key", c.Name, caName)
	}
	ca, err := loadCA(dir)
	if err != nil {
		return err
	}
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: c.Name},
		NotAfter:              time.Now().Add(cmp.Or(c.Lifetime, leafLifetime)),
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		BasicConstraintsValid: true,
		URIs:                  []*url.URL{c.Role.uri()},
	}
	if template.NotAfter.After(ca.Leaf.NotAfter) {
		return fmt.Errorf("it would end on %s, and the certificate authority itself ends on %s: give a shorter --lifetime, or replace the authority (`rota tls ca add`)",
			template.NotAfter.Format(time.DateOnly), ca.Leaf.NotAfter.Format(time.DateOnly))
	}
	if c.Role == RoleServer || c.Role == RoleAgent { // the roles that are dialed
		template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
		err = addHosts(template, append([]string{"localhost", "127.0.0.1", "::1", c.Name}, c.Hosts...))
	} else if len(c.Hosts) > 0 {
		err = fmt.Errorf("no process dials role %q, so its certificate has no hosts", c.Role)
	}
	if err != nil {
		return err
	}
	return write(FilesIn(dir, c.Name), template, &ca)
}

func addHosts(template *x509.Certificate, hosts []string) error {
	slices.Sort(hosts)
	for _, h := range slices.Compact(hosts) {
		switch ip := net.ParseIP(h); {
		case ip != nil:
			template.IPAddresses = append(template.IPAddresses, ip)
		case len(strings.TrimPrefix(h, "*.")) <= hostBytesMax && hostPattern.MatchString(h):
			template.DNSNames = append(template.DNSNames, h)
		default:
			return fmt.Errorf("%q is neither an address nor a host name", h)
		}
	}
	return nil
}

func hostsOf(cert *x509.Certificate) []string {
	hosts := slices.Clone(cert.DNSNames)
	for _, ip := range cert.IPAddresses {
		hosts = append(hosts, ip.String())
	}
	return hosts
}

// replacePair is writePair for files that are there: each is replaced by a rename. A
// process that reads them between the two keeps what it has.
func replacePair(f Files, template *x509.Certificate, ca *tls.Certificate) error {
	fresh := Files{CA: f.CA, Cert: f.Cert + ".new", Key: f.Key + ".new"}
	for _, path := range []string{fresh.Cert, fresh.Key} { // of a renewal that was interrupted
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if err := writePair(fresh, template, ca); err != nil {
		return err
	}
	if err := rename(fresh.Key, f.Key); err != nil {
		return err
	}
	return rename(fresh.Cert, f.Cert)
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
