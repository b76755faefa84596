package cli

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"rota/api/pki"
)

func (a *app) tlsCmd() *cobra.Command {
	return group("tls", "Make the certificates of a cluster", a.tlsInitCmd(), a.tlsIssueCmd(), a.tlsRenewCmd())
}

func (a *app) tlsInitCmd() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use: "init", Short: "Make a certificate authority", Args: exactly(),
		Example: "  rota tls init --dir pki\n  rota tls issue server server-1 --dir pki",
		RunE: func(*cobra.Command, []string) error {
			if err := pki.NewCA(dir); err != nil {
				return err
			}
			return a.printValue(map[string]string{"dir": dir}, []string{"certificate authority"}, [][]string{{dir}})
		},
	}
	cmd.Flags().StringVar(&dir, "dir", "pki", "folder of the authority")
	return cmd
}

func (a *app) tlsIssueCmd() *cobra.Command {
	var (
		dir string
		c   pki.Certificate
	)
	cmd := &cobra.Command{
		Use: "issue ROLE NAME", Short: "Issue a certificate to a server, an agent, an operator or a client", Args: exactly("ROLE", "NAME"),
		Long: `A client may submit work, but may not change the cluster. An operator may do everything
that a client may. An operator may also change the cluster: its members, pools, quotas,
node groups, namespaces, nodes and engines.`,
		Example:           "  rota tls issue server s1 --dir pki --host 10.0.0.1 --host s1.example.org\n  rota tls issue operator alice --dir pki --lifetime 720h",
		ValidArgsFunction: cobra.FixedCompletions(roleNames(), cobra.ShellCompDirectiveNoFileComp),
		RunE: func(_ *cobra.Command, args []string) error {
			role := pki.Role(args[0])
			if !slices.Contains(pki.Roles(), role) {
				return usageErrorf("unknown role %q; roles are %s", args[0], strings.Join(roleNames(), ", "))
			}
			c.Role, c.Name = role, args[1]
			if err := pki.IssueCertificate(dir, c); err != nil {
				return err
			}
			return a.printFiles(pki.FilesIn(dir, c.Name))
		},
	}
	cmd.Flags().StringVar(&dir, "dir", "pki", "folder of the authority")
	cmd.Flags().StringArrayVar(&c.Hosts, "host", nil, "address or host name of a server or an agent, for tools such as curl; repeat the flag for more")
	cmd.Flags().DurationVar(&c.Lifetime, "lifetime", 0, "validity of the certificate, such as 720h (default: a year)")
	return cmd
}

func (a *app) tlsRenewCmd() *cobra.Command {
	var (
		dir      string
		lifetime time.Duration
	)
	cmd := &cobra.Command{
		Use: "renew NAME", Short: "Replace a certificate and its key", Args: exactly("NAME"),
		Long: `The new certificate has a new key, and the role, the names and the lifetime of the old
certificate. Processes that use these files read them again by themselves. If the files
are used elsewhere, copy both files there. The old certificate stays valid until its end.`,
		Example: "  rota tls renew node-1 --dir pki",
		RunE: func(_ *cobra.Command, args []string) error {
			if err := pki.Renew(dir, args[0], lifetime); err != nil {
				return err
			}
			return a.printFiles(pki.FilesIn(dir, args[0]))
		},
	}
	cmd.Flags().StringVar(&dir, "dir", "pki", "folder of the authority")
	cmd.Flags().DurationVar(&lifetime, "lifetime", 0, "validity of the new certificate, such as 720h (default: as long as the old certificate)")
	return cmd
}

// printFiles prints the flags for a process that uses the certificate.
func (a *app) printFiles(f pki.Files) error {
	return a.printValue(map[string]string{"ca": f.CA, "cert": f.Cert, "key": f.Key},
		[]string{"flags"}, [][]string{{fmt.Sprintf("--ca %s --cert %s --key %s", f.CA, f.Cert, f.Key)}})
}

func roleNames() (names []string) {
	for _, r := range pki.Roles() {
		names = append(names, string(r))
	}
	return names
}
