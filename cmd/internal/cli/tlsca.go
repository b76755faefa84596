package cli

import (
	"crypto/x509"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"rota/api/pki"
)

// tlsShown is a certificate as rota tls show prints it.
type tlsShown struct {
	Name string `json:"name"`
	// Role is that of the certificate, or authority.
	Role        string    `json:"role"`
	NotBefore   time.Time `json:"not_before"`
	NotAfter    time.Time `json:"not_after"`
	Hosts       []string  `json:"hosts,omitempty"`
	Fingerprint string    `json:"fingerprint"`
	// Authority is the fingerprint of the authority that signed it; empty: none that ca.pem has.
	Authority string `json:"authority,omitempty"`
	// Signs: it is the authority that signs new certificates.
	Signs bool `json:"signs,omitempty"`
}

func (a *app) tlsShowCmd() *cobra.Command {
	var (
		dir    string
		within time.Duration
	)
	cmd := &cobra.Command{
		Use: "show", Short: "Show the authorities and certificates of a folder, and when they expire", Args: exactly(),
		Long: `Shows the authorities that processes trust with this ca.pem, and the certificates that
were issued. With --expires-within, the command exits with 1 if one of them expires
within that time, or has expired.`,
		Example: "  rota tls show --dir pki\n  rota tls show --dir pki --expires-within 720h || echo renew",
		RunE: func(*cobra.Command, []string) error {
			shown, err := shownIn(dir)
			if err != nil {
				return err
			}
			rows := make([][]string, 0, len(shown))
			for _, c := range shown {
				authority := c.Authority
				if authority == "" {
					authority = "unknown: nothing that uses this ca.pem trusts it"
				}
				if c.Signs {
					authority = "signs new certificates"
				}
				rows = append(rows, []string{c.Name, c.Role, c.NotAfter.UTC().Format(time.DateOnly), leftText(time.Until(c.NotAfter)),
					c.Fingerprint, authority, strings.Join(c.Hosts, " ")})
			}
			if err := a.printValue(shown, []string{"name", "role", "expires", "left", "fingerprint", "authority", "hosts"}, rows); err != nil {
				return err
			}
			return expiring(shown, within)
		},
	}
	cmd.Flags().StringVar(&dir, "dir", "pki", "folder of the authority")
	cmd.Flags().DurationVar(&within, "expires-within", 0, "exit with 1 if a certificate expires within this time, such as 720h")
	return cmd
}

// expiring is an error if a certificate expires within a time that is not 0.
func expiring(shown []tlsShown, within time.Duration) error {
	var names []string
	for _, c := range shown {
		if time.Until(c.NotAfter) < within {
			names = append(names, c.Name)
		}
	}
	if within == 0 || len(names) == 0 {
		return nil
	}
	return &codeError{exitError, fmt.Errorf("%s: less than %s left; use `rota tls renew`, or `rota tls ca add` for an authority", strings.Join(names, ", "), within)}
}

// shownIn lists what a folder has: authorities first.
func shownIn(dir string) ([]tlsShown, error) {
	cas, signs, err := pki.Trusted(dir)
	if err != nil {
		return nil, err
	}
	issued, err := pki.Issued(dir)
	if err != nil {
		return nil, err
	}
	var shown []tlsShown
	for i, c := range cas {
		shown = append(shown, tlsShown{
			Name: c.Subject.CommonName, Role: "authority", NotBefore: c.NotBefore, NotAfter: c.NotAfter,
			Fingerprint: pki.Fingerprint(c), Authority: signerOf(c, cas), Signs: i == signs,
		})
	}
	for _, c := range issued {
		hosts := append([]string(nil), c.DNSNames...)
		for _, ip := range c.IPAddresses {
			hosts = append(hosts, ip.String())
		}
		shown = append(shown, tlsShown{
			Name: c.Name, Role: string(c.Role), NotBefore: c.NotBefore, NotAfter: c.NotAfter, Hosts: hosts,
			Fingerprint: pki.Fingerprint(c.Certificate), Authority: signerOf(c.Certificate, cas),
		})
	}
	return shown, nil
}

// signerOf is the fingerprint of the authority that signed a certificate.
func signerOf(c *x509.Certificate, cas []*x509.Certificate) string {
	for _, ca := range cas {
		if c.CheckSignatureFrom(ca) == nil {
			return pki.Fingerprint(ca)
		}
	}
	return ""
}

// leftText says how long a certificate is still valid.
func leftText(left time.Duration) string {
	switch days := int(left / (24 * time.Hour)); {
	case left <= 0:
		return "expired"
	case days == 0:
		return left.Round(time.Minute).String()
	case days == 1:
		return "1 day"
	default:
		return fmt.Sprintf("%d days", days)
	}
}

func (a *app) tlsCACmd() *cobra.Command {
	return group("ca", "Replace the certificate authority without a restart",
		a.tlsCAAddCmd(),
		a.tlsCAStepCmd("use", "Sign with the new authority from now on",
			`Do this when every machine has the ca.pem that "rota tls ca add" has written. Then renew
the certificates with "rota tls renew --all" and install them. The key of the old
authority is deleted: it is not needed any more.`, pki.UseCA),
		a.tlsCAStepCmd("remove", "Take the old authority out of ca.pem",
			`Do this when every process has a certificate of the new authority. Copy ca.pem to every
machine afterwards. The command fails if a certificate in the folder that has not expired
is of the old authority.`, pki.RemoveCA))
}

func (a *app) tlsCAAddCmd() *cobra.Command {
	var (
		dir string
		ca  pki.Authority
	)
	cmd := &cobra.Command{
		Use: "add", Short: "Make a new authority and add it to ca.pem", Args: exactly(),
		Long: `Begins the replacement of the authority. ca.pem holds both authorities afterwards, and the
old one still signs. Copy ca.pem to every machine: each process reads it again by itself
and trusts certificates of both. Then use "rota tls ca use".`,
		Example: "  rota tls ca add --dir pki\n  rota tls ca use --dir pki\n  rota tls renew --all --dir pki\n  rota tls ca remove --dir pki",
		RunE: func(*cobra.Command, []string) error {
			if err := pki.AddCA(dir, ca); err != nil {
				return err
			}
			return a.printAuthorities(dir)
		},
	}
	cmd.Flags().StringVar(&dir, "dir", "pki", "folder of the authority")
	authorityFlags(cmd, &ca)
	return cmd
}

func (a *app) tlsCAStepCmd(use, short, long string, step func(dir string) error) *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use: use, Short: short, Long: long, Args: exactly(),
		Example: "  rota tls ca " + use + " --dir pki",
		RunE: func(*cobra.Command, []string) error {
			if err := step(dir); err != nil {
				return err
			}
			return a.printAuthorities(dir)
		},
	}
	cmd.Flags().StringVar(&dir, "dir", "pki", "folder of the authority")
	return cmd
}

// printAuthorities prints which authorities ca.pem has.
func (a *app) printAuthorities(dir string) error {
	shown, err := shownIn(dir)
	if err != nil {
		return err
	}
	var cas []tlsShown
	var rows [][]string
	for _, c := range shown {
		if c.Role == "authority" {
			cas = append(cas, c)
			rows = append(rows, []string{c.Name, c.Fingerprint, c.NotAfter.UTC().Format(time.DateOnly), yesNo(c.Signs)})
		}
	}
	return a.printValue(cas, []string{"authority", "fingerprint", "expires", "signs"}, rows)
}
