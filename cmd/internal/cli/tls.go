package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"rota/api/pki"
)

func (a *app) tlsCmd() *cobra.Command {
	return group("tls", "Make the certificates of a cluster", a.tlsInitCmd(), a.tlsIssueCmd())
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
	var dir string
	cmd := &cobra.Command{
		Use: "issue ROLE NAME", Short: "Issue a certificate to a server, an agent or a client", Args: exactly("ROLE", "NAME"),
		Example:           "  rota tls issue agent node-1 --dir pki",
		ValidArgsFunction: cobra.FixedCompletions([]string{"server", "agent", "client"}, cobra.ShellCompDirectiveNoFileComp),
		RunE: func(_ *cobra.Command, args []string) error {
			role := pki.Role(args[0])
			if role != pki.RoleServer && role != pki.RoleAgent && role != pki.RoleClient {
				return usageErrorf("unknown role %q; roles are server, agent and client", args[0])
			}
			if err := pki.Issue(dir, role, args[1]); err != nil {
				return err
			}
			files := pki.FilesIn(dir, args[1])
			return a.printValue(
				map[string]string{"ca": files.CA, "cert": files.Cert, "key": files.Key},
				[]string{"flags"},
				[][]string{{fmt.Sprintf("--ca %s --cert %s --key %s", files.CA, files.Cert, files.Key)}})
		},
	}
	cmd.Flags().StringVar(&dir, "dir", "pki", "folder of the authority")
	return cmd
}
