package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"rota/api/pki"
)

func (a *app) tlsCmd() *cobra.Command {
	return group("tls", "Make, show and replace the certificates of a cluster",
		a.tlsInitCmd(), a.tlsIssueCmd(), a.tlsRenewCmd(), a.tlsShowCmd(), a.tlsCACmd())
}

func (a *app) tlsInitCmd() *cobra.Command {
	var (
		dir string
		ca  pki.Authority
	)
	cmd := &cobra.Command{
		Use: "init", Short: "Make a certificate authority", Args: exactly(),
		Example: "  rota tls init --dir pki\n  rota tls issue server server-1 --dir pki",
		RunE: func(*cobra.Command, []string) error {
			if err := pki.NewAuthority(dir, ca); err != nil {
				return err
			}
			return a.printValue(map[string]string{"dir": dir}, []string{"certificate authority"}, [][]string{{dir}})
		},
	}
	cmd.Flags().StringVar(&dir, "dir", "pki", "folder of the authority")
	authorityFlags(cmd, &ca)
	return cmd
}

// authorityFlags are those of commands that make a certificate authority.
func authorityFlags(cmd *cobra.Command, ca *pki.Authority) {
	cmd.Flags().StringVar(&ca.Name, "name", "", `name of the authority (default: "rota CA")`)
	cmd.Flags().DurationVar(&ca.Lifetime, "lifetime", 0, "validity of the authority, such as 43800h (default: ten years)")
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
		dir string
		all bool
		r   pki.Renewal
	)
	cmd := &cobra.Command{
		Use: "renew [NAME...]", Short: "Replace certificates and their keys",
		Long: `Each new certificate has a new key, and the role, the names and the lifetime of the old
certificate. Processes that use these files read them again by themselves. If the files
are used elsewhere, copy both files there. The old certificate stays valid until its end.`,
		Example: "  rota tls renew node-1 --dir pki\n  rota tls renew --all --dir pki",
		RunE: func(_ *cobra.Command, names []string) error {
			if all != (len(names) == 0) {
				return usageErrorf("give either the NAMEs of certificates or --all")
			}
			if all && len(r.Hosts) > 0 {
				return usageErrorf("--host is for one certificate, not for --all")
			}
			if all {
				issued, err := pki.Issued(dir)
				if err != nil {
					return err
				}
				for _, c := range issued {
					names = append(names, c.Name)
				}
			}
			rows := make([][]string, 0, len(names))
			for _, name := range names {
				if err := pki.Renew(dir, name, r); err != nil {
					return err
				}
				f := pki.FilesIn(dir, name)
				rows = append(rows, []string{name, f.Cert, f.Key})
			}
			return a.printValue(names, []string{"renewed", "certificate", "key"}, rows)
		},
	}
	cmd.Flags().StringVar(&dir, "dir", "pki", "folder of the authority")
	cmd.Flags().BoolVar(&all, "all", false, "renew every certificate in the folder")
	cmd.Flags().StringArrayVar(&r.Hosts, "host", nil, "address or host name of the new certificate; repeat the flag for more (default: those of the old certificate)")
	cmd.Flags().DurationVar(&r.Lifetime, "lifetime", 0, "validity of the new certificates, such as 720h (default: as long as the old certificate)")
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
