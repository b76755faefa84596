package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"rota/api/client"
	rotav1 "rota/api/gen/rota/v1"
)

func (a *app) tokenCmd() *cobra.Command {
	return group("token", "Create, list and revoke tokens, with which callers without a certificate are let in",
		a.tokenBootstrapCmd(), a.tokenCreateCmd(), a.reads(a.tokenListCmd()), a.reads(a.tokenGetCmd()), a.tokenRevokeCmd())
}

func (a *app) tokenBootstrapCmd() *cobra.Command {
	return &cobra.Command{
		Use: "bootstrap", Short: "Create the first token and make the cluster accept tokens", Args: exactly(),
		Long: `Creates a token that may do everything, and makes the cluster accept tokens and JWTs. This works
once, and with TLS it needs an operator's certificate. Afterwards servers let in callers without a
certificate, who need a token, and without TLS every caller needs one.

The secret is shown once. If it is lost, write the number that the error names into the file
access-bootstrap-reset in the data folder of a server, and repeat the command with --addr of that
server.`,
		Example: "  rota token bootstrap\n  rota token bootstrap -o json",
		RunE: a.with(func(ctx context.Context, c *client.Client, _ []string) error {
			resp, err := call(ctx, a, c.Access.BootstrapToken, &rotav1.BootstrapTokenRequest{})
			if err != nil {
				return err
			}
			return a.printNewToken(resp, resp.Token, resp.Secret)
		}),
	}
}

func (a *app) tokenCreateCmd() *cobra.Command {
	var policies []string
	var ttl time.Duration
	var description string
	cmd := &cobra.Command{
		Use: "create", Short: "Create a token with policies", Args: exactly(),
		Long: `Creates a token. It may do what its policies allow, and nothing else. The secret is shown once.
Put it into ROTA_TOKEN or into a private file for --token-file.`,
		Example: "  rota token create --policy team-search --ttl 24h --description 'nightly tests'",
		RunE: a.with(func(ctx context.Context, c *client.Client, _ []string) error {
			if len(policies) == 0 {
				return usageErrorf("--policy is needed: a token without policies may do nothing; see: rota acl policy list")
			}
			req := &rotav1.CreateTokenRequest{Policies: policies, Description: description}
			if ttl != 0 {
				req.Ttl = durationpb.New(ttl)
			}
			resp, err := call(ctx, a, c.Access.CreateToken, req)
			if err != nil {
				return err
			}
			return a.printNewToken(resp, resp.Token, resp.Secret)
		}),
	}
	cmd.Flags().StringSliceVar(&policies, "policy", nil, "policies that say what the token may do")
	cmd.Flags().DurationVar(&ttl, "ttl", 0, "how long the token is valid (default: until it is revoked)")
	cmd.Flags().StringVar(&description, "description", "", "what the token is for")
	return cmd
}

func (a *app) printNewToken(m proto.Message, t *rotav1.AccessToken, secret string) error {
	return a.printFields(m, append(tokenFields(t), field{"secret", secret}))
}

func tokenFields(t *rotav1.AccessToken) []field {
	return []field{
		{"accessor", t.GetAccessorId()}, {"policies", strings.Join(t.GetPolicies(), " ")}, {"description", t.GetDescription()},
		{"created", formatTime(t.GetCreateTime())}, {"created by", t.GetCreatedBy()}, {"expires", expiry(t)},
	}
}

func expiry(t *rotav1.AccessToken) string {
	if t.GetExpireTime() == nil {
		return "never"
	}
	return formatTime(t.ExpireTime)
}

func (a *app) tokenListCmd() *cobra.Command {
	return &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List tokens, without their secrets", Args: exactly(), Example: "  rota token list",
		RunE: a.with(func(ctx context.Context, c *client.Client, _ []string) error {
			all := &rotav1.ListTokensResponse{}
			req := &rotav1.ListTokensRequest{PageSize: 1000}
			err := pages(ctx, a, c.Access.ListTokens, req, &req.PageToken, func(page *rotav1.ListTokensResponse) {
				all.Tokens = append(all.Tokens, page.Tokens...)
			})
			if err != nil {
				return err
			}
			rows := make([][]string, 0, len(all.Tokens))
			for _, t := range all.Tokens {
				rows = append(rows, []string{t.AccessorId, strings.Join(t.Policies, " "), t.Description, formatTime(t.CreateTime), expiry(t), t.CreatedBy})
			}
			return a.print(all, []string{"accessor", "policies", "description", "created", "expires", "created by"}, rows)
		}),
	}
}

func (a *app) tokenGetCmd() *cobra.Command {
	return &cobra.Command{
		Use: "get ACCESSOR", Short: "Show a token, without its secret", Args: exactly("ACCESSOR"), Example: "  rota token get 0f9d3c2b1a4e5f60718293a4b5c6d7e8",
		RunE: a.with(func(ctx context.Context, c *client.Client, args []string) error {
			resp, err := call(ctx, a, c.Access.GetToken, &rotav1.GetTokenRequest{AccessorId: args[0]})
			if err != nil {
				return err
			}
			return a.printFields(resp.Token, tokenFields(resp.Token))
		}),
	}
}

func (a *app) tokenRevokeCmd() *cobra.Command {
	return &cobra.Command{
		Use: "revoke ACCESSOR...", Short: "Make tokens invalid at once", Args: atLeastOne("ACCESSOR"),
		Long: `Makes tokens invalid. No change by a revoked token is accepted any more, by whatever server, and its
streams end.`,
		Example: "  rota token revoke 0f9d3c2b1a4e5f60718293a4b5c6d7e8",
		RunE: a.with(func(ctx context.Context, c *client.Client, args []string) error {
			var errs []error
			for _, accessor := range args {
				_, err := call(ctx, a, c.Access.RevokeToken, &rotav1.RevokeTokenRequest{AccessorId: accessor})
				errs = append(errs, err)
			}
			return errors.Join(errs...)
		}),
	}
}

func (a *app) aclCmd() *cobra.Command {
	return group("acl", "Say what tokens, JWTs and client certificates may do",
		a.reads(a.aclStatusCmd()), a.aclSwitchCmd(true), a.aclSwitchCmd(false), a.aclPolicyCmd(), a.authMethodCmd())
}

func (a *app) aclStatusCmd() *cobra.Command {
	return &cobra.Command{
		Use: "status", Short: "Show whether tokens are accepted, and what you may do", Args: exactly(), Example: "  rota acl status",
		RunE: a.with(func(ctx context.Context, c *client.Client, _ []string) error {
			resp, err := call(ctx, a, c.Access.GetAccess, &rotav1.GetAccessRequest{})
			if err != nil {
				return err
			}
			fields := []field{
				{"tokens", map[bool]string{true: "accepted", false: "not accepted"}[resp.Enabled]}, {"first tokens", fmt.Sprint(resp.Bootstraps)},
				{"caller", strings.TrimSpace(resp.CallerKind + " " + resp.Caller)}, {"policies", strings.Join(resp.Policies, " ")},
			}
			for _, r := range resp.Rules {
				fields = append(fields, field{"may", fmt.Sprintf("%s %s in namespace %s", strings.Join(r.Verbs, ", "), r.Noun, r.Namespace)})
			}
			return a.printFields(resp, fields)
		}),
	}
}

func (a *app) aclSwitchCmd(enabled bool) *cobra.Command {
	use, short := "enable", "Accept tokens and JWTs again"
	if !enabled {
		use, short = "disable", "Accept no tokens and no JWTs; certificates still count"
	}
	return &cobra.Command{
		Use: use, Short: short, Args: exactly(), Example: "  rota acl " + use,
		RunE: a.with(func(ctx context.Context, c *client.Client, _ []string) error {
			_, err := call(ctx, a, c.Access.SetAccess, &rotav1.SetAccessRequest{Enabled: enabled})
			return err
		}),
	}
}
