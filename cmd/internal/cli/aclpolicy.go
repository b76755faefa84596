package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"

	"rota/api/client"
	rotav1 "rota/api/gen/rota/v1"
	"rota/api/rights"
)

func (a *app) aclPolicyCmd() *cobra.Command {
	return group("policy", "Write, list and delete policies: what tokens may do",
		a.aclPolicyPutCmd(), a.reads(a.aclPolicyListCmd()), a.reads(a.aclPolicyGetCmd()), a.aclPolicyDeleteCmd())
}

func (a *app) aclPolicyPutCmd() *cobra.Command {
	return &cobra.Command{
		Use: "put NAME FILE", Short: "Create or replace a policy from a file", Args: exactly("NAME", "FILE"),
		Long: `Creates or replaces a policy. FILE is "-" for standard input. Each line "in PATTERN" begins a
block, and each other line is a noun with its verbs. What no line allows is refused:

  # What the search team may do.
  in search-*
    action read submit cancel
    trajectory *
  in *
    node read

PATTERN is a name, a prefix followed by "*", or "*". Nouns: ` + strings.Join(rights.Nouns(), ", ") + `.
Verbs: ` + strings.Join(rights.Verbs(), ", ") + `. "*" stands for all of them.`,
		Example: "  rota acl policy put team-search search.policy",
		RunE: a.with(func(ctx context.Context, c *client.Client, args []string) error {
			text, err := readLimited(args[1])
			if err != nil {
				return err
			}
			rules, err := rights.Parse(text)
			if err != nil {
				return usageErrorf("%s: %w", args[1], err)
			}
			_, err = call(ctx, a, c.Access.PutAccessPolicy, &rotav1.PutAccessPolicyRequest{Policy: &rotav1.AccessPolicy{Name: args[0], Rules: rules}})
			return err
		}),
	}
}

// readLimited reads a policy from a file, or from standard input.
func readLimited(path string) (string, error) {
	in := io.Reader(os.Stdin)
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return "", err
		}
		defer func() { _ = f.Close() }()
		in = f
	}
	text, err := io.ReadAll(io.LimitReader(in, rights.PolicyTextMax+1))
	return string(text), err
}

func (a *app) aclPolicyListCmd() *cobra.Command {
	return &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List policies", Args: exactly(), Example: "  rota acl policy list",
		RunE: a.with(func(ctx context.Context, c *client.Client, _ []string) error {
			all := &rotav1.ListAccessPoliciesResponse{}
			req := &rotav1.ListAccessPoliciesRequest{PageSize: 1000}
			err := pages(ctx, a, c.Access.ListAccessPolicies, req, &req.PageToken, func(page *rotav1.ListAccessPoliciesResponse) {
				all.Policies = append(all.Policies, page.Policies...)
			})
			if err != nil {
				return err
			}
			rows := make([][]string, 0, len(all.Policies))
			for _, p := range all.Policies {
				rows = append(rows, []string{p.Name, fmt.Sprint(len(p.Rules))})
			}
			return a.print(all, []string{"name", "rules"}, rows)
		}),
	}
}

func (a *app) aclPolicyGetCmd() *cobra.Command {
	return &cobra.Command{
		Use: "get NAME", Short: "Show a policy in the form that put reads", Args: exactly("NAME"), Example: "  rota acl policy get team-search",
		RunE: a.with(func(ctx context.Context, c *client.Client, args []string) error {
			resp, err := call(ctx, a, c.Access.GetAccessPolicy, &rotav1.GetAccessPolicyRequest{Name: args[0]})
			if err != nil {
				return err
			}
			if a.settings.output == "json" {
				return a.print(resp.Policy, nil, nil)
			}
			_, err = io.WriteString(a.out, rights.Format(resp.Policy.Rules))
			return err
		}),
	}
}

func (a *app) aclPolicyDeleteCmd() *cobra.Command {
	return &cobra.Command{
		Use: "delete NAME", Short: "Delete a policy; tokens that have it lose its rights", Args: exactly("NAME"), Example: "  rota acl policy delete team-search",
		RunE: a.with(func(ctx context.Context, c *client.Client, args []string) error {
			_, err := call(ctx, a, c.Access.DeleteAccessPolicy, &rotav1.DeleteAccessPolicyRequest{Name: args[0]})
			return err
		}),
	}
}

func (a *app) authMethodCmd() *cobra.Command {
	return group("auth-method", "Say which policies JWTs and client certificates get",
		a.authMethodPutCmd(), a.reads(a.authMethodListCmd()), a.reads(a.authMethodGetCmd()), a.authMethodDeleteCmd())
}

func (a *app) authMethodPutCmd() *cobra.Command {
	m := &rotav1.AuthMethod{}
	var skew time.Duration
	var maps []string
	cmd := &cobra.Command{
		Use: "put NAME", Short: "Create or replace a method", Args: exactly("NAME"),
		Long: `Creates or replaces a method. A JWT whose issuer and audience are those of a method, whose signature
is from a key of the issuer, and that has not expired gets the policies of all --map whose claim it
has. --map CLAIM=PATTERN:POLICY[,POLICY...] may be repeated; PATTERN is a value, or a prefix and "*".

Without --jwks-url and --jwks-file the keys are where the OpenID configuration of the issuer says.
An issuer whose certificate the servers' machines do not trust, as that of a Kubernetes cluster, needs
--jwks-ca-file. docs/security.md says what else Kubernetes needs.

With --certificates the method is about client certificates: their claim is "name". As long as
there is such a method, client certificates may do only what such methods give them.`,
		Example: `  rota acl auth-method put kubernetes --issuer https://kubernetes.default.svc.cluster.local --audience rota \
    --jwks-ca-file /etc/rota/kubernetes/ca.crt --map 'sub=system:serviceaccount:search:*:team-search'
  rota acl auth-method put narrow --certificates --map 'name=ci-*:ci'`,
		RunE: a.with(func(ctx context.Context, c *client.Client, args []string) error {
			m.Name = args[0]
			if skew != 0 {
				m.ClockSkew = durationpb.New(skew)
			}
			for _, text := range maps {
				x, err := parseMapping(text)
				if err != nil {
					return err
				}
				m.Mappings = append(m.Mappings, x)
			}
			_, err := call(ctx, a, c.Access.PutAuthMethod, &rotav1.PutAuthMethodRequest{Method: m})
			return err
		}),
	}
	f := cmd.Flags()
	f.BoolVar(&m.Certificates, "certificates", false, "the method is about client certificates")
	f.StringVar(&m.Issuer, "issuer", "", "issuer of the JWTs, their claim iss")
	f.StringSliceVar(&m.Audiences, "audience", nil, "audiences of which a JWT must have one, its claim aud")
	f.StringVar(&m.JwksUrl, "jwks-url", "", "URL of the issuer's keys, a JSON Web Key Set")
	f.StringVar(&m.JwksFile, "jwks-file", "", "file with the issuer's keys, on every server")
	f.StringVar(&m.JwksCaFile, "jwks-ca-file", "", "file with the authorities of the issuer's certificate, on every server (default: those that the machine trusts)")
	f.StringSliceVar(&m.Algorithms, "algorithm", nil, "allowed algorithms: "+strings.Join(rights.Algorithms(), ", ")+" (default all)")
	f.DurationVar(&skew, "clock-skew", 0, "how much the clocks may differ (default 30s)")
	f.StringArrayVar(&maps, "map", nil, "policies for a claim, CLAIM=PATTERN:POLICY[,POLICY...]")
	return cmd
}

// parseMapping reads CLAIM=PATTERN:POLICY[,POLICY...]. A pattern may have colons.
func parseMapping(text string) (*rotav1.ClaimMapping, error) {
	claim, rest, ok := strings.Cut(text, "=")
	i := strings.LastIndex(rest, ":")
	if !ok || claim == "" || i <= 0 || i == len(rest)-1 {
		return nil, usageErrorf("--map: %q is not CLAIM=PATTERN:POLICY[,POLICY...]", text)
	}
	return &rotav1.ClaimMapping{Claim: claim, Pattern: rest[:i], Policies: strings.Split(rest[i+1:], ",")}, nil
}

func (a *app) authMethodListCmd() *cobra.Command {
	return &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List methods", Args: exactly(), Example: "  rota acl auth-method list",
		RunE: a.with(func(ctx context.Context, c *client.Client, _ []string) error {
			resp, err := call(ctx, a, c.Access.ListAuthMethods, &rotav1.ListAuthMethodsRequest{})
			if err != nil {
				return err
			}
			rows := make([][]string, 0, len(resp.Methods))
			for _, m := range resp.Methods {
				rows = append(rows, []string{m.Name, methodOf(m), strings.Join(m.Audiences, " "), fmt.Sprint(len(m.Mappings))})
			}
			return a.print(resp, []string{"name", "issuer", "audiences", "mappings"}, rows)
		}),
	}
}

func methodOf(m *rotav1.AuthMethod) string {
	if m.GetCertificates() {
		return "client certificates"
	}
	return m.GetIssuer()
}

func (a *app) authMethodGetCmd() *cobra.Command {
	return &cobra.Command{
		Use: "get NAME", Short: "Show a method", Args: exactly("NAME"), Example: "  rota acl auth-method get kubernetes",
		RunE: a.with(func(ctx context.Context, c *client.Client, args []string) error {
			resp, err := call(ctx, a, c.Access.GetAuthMethod, &rotav1.GetAuthMethodRequest{Name: args[0]})
			if err != nil {
				return err
			}
			m := resp.Method
			fields := []field{
				{"name", m.Name}, {"issuer", methodOf(m)}, {"audiences", strings.Join(m.Audiences, " ")}, {"keys", m.JwksUrl + m.JwksFile},
				{"authorities", m.JwksCaFile},
				{"algorithms", strings.Join(m.Algorithms, " ")},
			}
			for _, x := range m.Mappings {
				fields = append(fields, field{"map", fmt.Sprintf("%s=%s:%s", x.Claim, x.Pattern, strings.Join(x.Policies, ","))})
			}
			return a.printFields(m, fields)
		}),
	}
}

func (a *app) authMethodDeleteCmd() *cobra.Command {
	return &cobra.Command{
		Use: "delete NAME", Short: "Delete a method; what it let in is refused", Args: exactly("NAME"), Example: "  rota acl auth-method delete kubernetes",
		RunE: a.with(func(ctx context.Context, c *client.Client, args []string) error {
			_, err := call(ctx, a, c.Access.DeleteAuthMethod, &rotav1.DeleteAuthMethodRequest{Name: args[0]})
			return err
		}),
	}
}
