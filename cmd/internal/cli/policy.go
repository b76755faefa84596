package cli

import (
	"context"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"rota/api/client"
	rotav1 "rota/api/gen/rota/v1"
)

func (a *app) policyCmd() *cobra.Command {
	return group("policy", "Publish versions of policies, hold their requests, and see policies",
		a.reads(a.policyListCmd()), a.reads(a.policyGetCmd()), a.policyPublishCmd(), a.policySuspendCmd(), a.policyResumeCmd(), a.policyDeleteCmd(), a.policyAffinityCmd())
}

func (a *app) policyListCmd() *cobra.Command {
	return &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List policies", Args: exactly(), Example: "  rota policy list",
		RunE: a.with(func(ctx context.Context, c *client.Client, _ []string) error {
			all := &rotav1.ListPoliciesResponse{}
			req := &rotav1.ListPoliciesRequest{PageSize: 1000}
			err := pages(ctx, a, c.Rollouts.ListPolicies, req, &req.PageToken, func(page *rotav1.ListPoliciesResponse) {
				all.Policies = append(all.Policies, page.Policies...)
			})
			if err != nil {
				return err
			}
			rows := make([][]string, 0, len(all.Policies))
			for _, p := range all.Policies {
				rows = append(rows, []string{p.Name, p.Namespace, fmt.Sprint(p.Version), policyState(p), fmt.Sprint(p.Step), fmt.Sprint(p.CompleteGroups), fmt.Sprint(p.BufferedSamples), formatTime(p.PublishTime)})
			}
			return a.print(all, []string{"name", "namespace", "version", "requests", "step", "complete groups", "samples", "published"}, rows)
		}),
	}
}

func (a *app) policyGetCmd() *cobra.Command {
	return &cobra.Command{
		Use: "get NAME", Short: "Show a policy", Args: exactly("NAME"), Example: "  rota policy get model-7b",
		RunE: a.with(func(ctx context.Context, c *client.Client, args []string) error { return a.showPolicy(ctx, c, args[0]) }),
	}
}

func (a *app) showPolicy(ctx context.Context, c *client.Client, name string) error {
	resp, err := call(ctx, a, c.Rollouts.GetPolicy, &rotav1.GetPolicyRequest{Policy: name})
	if err != nil {
		return err
	}
	p := resp.Policy
	return a.printFields(p, []field{
		{"policy", p.GetName()}, {"namespace", p.GetNamespace()}, {"version", fmt.Sprint(p.GetVersion())}, {"published", formatTime(p.GetPublishTime())}, {"requests", policyState(p)},
		{"last step", fmt.Sprint(p.GetStep())}, {"complete groups", fmt.Sprint(p.GetCompleteGroups())}, {"samples", fmt.Sprint(p.GetBufferedSamples())},
	})
}

func policyState(p *rotav1.Policy) string {
	if p.GetSuspended() {
		return "suspended"
	}
	return "served"
}

func (a *app) policyPublishCmd() *cobra.Command {
	return &cobra.Command{
		Use: "publish NAME VERSION", Short: "Make a version of the weights the current one", Args: exactly("NAME", "VERSION"),
		Long: `Makes a version the current one. Versions only grow. Trajectories that began more versions ago
than the staleness of their rollout are closed, and their samples are dropped. A policy that belongs to
no namespace yet then belongs to that of --namespace, if it is given.`,
		Example: "  rota policy publish model-7b 13",
		RunE: a.with(func(ctx context.Context, c *client.Client, args []string) error {
			version, err := strconv.ParseUint(args[1], 10, 64)
			if err != nil || version == 0 {
				return usageErrorf("the version must be a number from 1 on, not %q", args[1])
			}
			resp, err := call(ctx, a, c.Rollouts.PublishVersion, &rotav1.PublishVersionRequest{Policy: args[0], Version: version, Namespace: a.settings.namespace})
			if err != nil {
				return err
			}
			return a.printFields(resp, []field{
				{"policy", args[0]}, {"version", fmt.Sprint(resp.Policy.GetVersion())}, {"closed trajectories", fmt.Sprint(resp.ClosedTrajectories)},
			})
		}),
	}
}

func (a *app) policySuspendCmd() *cobra.Command {
	return &cobra.Command{
		Use: "suspend NAME", Short: "Hold the requests of a policy at the gateways, so that its weights can change", Args: exactly("NAME"), Example: "  rota policy suspend model-7b",
		RunE: a.with(func(ctx context.Context, c *client.Client, args []string) error {
			if _, err := call(ctx, a, c.Rollouts.SuspendPolicy, &rotav1.SuspendPolicyRequest{Policy: args[0]}); err != nil {
				return err
			}
			return a.showPolicy(ctx, c, args[0])
		}),
	}
}

func (a *app) policyResumeCmd() *cobra.Command {
	return &cobra.Command{
		Use: "resume NAME", Short: "Let the requests of a suspended policy go on", Args: exactly("NAME"), Example: "  rota policy resume model-7b",
		RunE: a.with(func(ctx context.Context, c *client.Client, args []string) error {
			if _, err := call(ctx, a, c.Rollouts.ResumePolicy, &rotav1.ResumePolicyRequest{Policy: args[0]}); err != nil {
				return err
			}
			return a.showPolicy(ctx, c, args[0])
		}),
	}
}

func (a *app) policyDeleteCmd() *cobra.Command {
	return &cobra.Command{
		Use: "delete NAME", Aliases: []string{"rm"}, Short: "Forget a policy, the batch of its last step, and what was learned of its trajectories", Args: exactly("NAME"),
		Long: `Forgets a policy. It must have no workers, worker pools and open trajectories, and no rollouts:
those that ended are kept for the retention time. The batch of its last step cannot be had any
more. Needs an operator's certificate.`,
		Example: "  rota policy delete model-7b",
		RunE: a.with(func(ctx context.Context, c *client.Client, args []string) error {
			resp, err := call(ctx, a, c.Rollouts.DeletePolicy, &rotav1.DeletePolicyRequest{Policy: args[0]})
			if err != nil {
				return err
			}
			return a.printFields(resp, []field{{"deleted", args[0]}})
		}),
	}
}
