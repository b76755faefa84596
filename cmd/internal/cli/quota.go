package cli

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"rota/api/client"
	rotav1 "rota/api/gen/rota/v1"
)

func (a *app) quotaCmd() *cobra.Command {
	return group("quota", "Limit how actions use an external service, such as a provider's API",
		a.quotaCreateCmd(), a.reads(a.quotaListCmd()), a.reads(a.quotaGetCmd()), a.quotaUpdateCmd(), a.quotaDeleteCmd())
}

// quotaFlags are the flags of a new quota.
type quotaFlags struct {
	concurrency, limit, keys uint32
	per                      time.Duration
	sliding, adaptive        bool
}

func (a *app) quotaCreateCmd() *cobra.Command {
	var f quotaFlags
	cmd := &cobra.Command{
		Use: "create NAME", Short: "Create a quota: a limit of units at once, or of units in a window", Args: exactly("NAME"),
		Long: `Creates a limit that actions can name, as with: rota run --quota NAME. Actions wait for
the quota, first come, first served. With --limit and --per, a unit stays in use until
the window has passed since the end of the call, because the provider may have counted
the call as late as its end. --keys pools several keys of one provider. Each key has the
full limit, and the command finds the number of its key in ROTA_QUOTA_NAME.

Units may be tokens or money: an action waits for as many as it expects to use. If its
attempt then says what it really used, that counts in the window instead. See
rota run --settle, and the file $ROTA_USAGE_FILE of commands.

With --adaptive, the quota adapts when the provider refuses calls (HTTP 429, or 503 with
Retry-After): it pauses for as long as the provider asks, and halves what may be in use. Calls
that succeed raise that step by step, up to the limit. HTTP calls report refusals by
themselves. A command writes the seconds to wait into the file $ROTA_THROTTLE_FILE.`,
		Example: `  rota quota create browser --concurrency 8
  rota quota create openai --limit 60 --per 1m --sliding --keys 3 --adaptive
  rota quota create tokens --limit 1000000 --per 1m --sliding`,
		RunE: func(cmd *cobra.Command, args []string) error {
			req, err := f.request(args[0])
			if err != nil {
				return err
			}
			c, err := a.dial()
			if err != nil {
				return err
			}
			resp, err := call(cmd.Context(), a, c.Quotas.CreateQuota, req)
			if err != nil {
				return err
			}
			return a.printQuota(resp, resp.Quota)
		},
	}
	fs := cmd.Flags()
	fs.Uint32Var(&f.concurrency, "concurrency", 0, "units in use at once")
	fs.Uint32Var(&f.limit, "limit", 0, "units in each window")
	fs.DurationVar(&f.per, "per", 0, "length of the window, such as 1m")
	fs.BoolVar(&f.sliding, "sliding", false, "the provider counts any interval of that length, not windows one after the other")
	fs.Uint32Var(&f.keys, "keys", 1, "number of pooled keys of one provider, each with this limit")
	fs.BoolVar(&f.adaptive, "adaptive", false, "pause and grant less while the provider refuses calls")
	return cmd
}

func (f *quotaFlags) request(name string) (*rotav1.CreateQuotaRequest, error) {
	req := &rotav1.CreateQuotaRequest{Name: name, Keys: f.keys, Adaptive: f.adaptive}
	switch {
	case f.concurrency > 0 && f.limit == 0 && f.per == 0 && !f.sliding:
		req.Kind, req.Limit = rotav1.QuotaKind_QUOTA_KIND_CONCURRENCY, f.concurrency
		return req, nil
	case f.concurrency == 0 && f.limit > 0 && f.per > 0:
		req.Kind, req.Limit, req.Window = rotav1.QuotaKind_QUOTA_KIND_FIXED_WINDOW, f.limit, durationpb.New(f.per)
		if f.sliding {
			req.Kind = rotav1.QuotaKind_QUOTA_KIND_SLIDING_WINDOW
		}
		return req, nil
	}
	return nil, usageErrorf("give either --concurrency N, or --limit N and --per DURATION")
}

func (a *app) quotaListCmd() *cobra.Command {
	return &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List quotas and their use", Args: exactly(),
		Example: "  rota quota list",
		RunE: a.with(func(ctx context.Context, c *client.Client, _ []string) error {
			resp, err := call(ctx, a, c.Quotas.ListQuotas, &rotav1.ListQuotasRequest{})
			if err != nil {
				return err
			}
			rows := make([][]string, 0, len(resp.Quotas))
			for _, q := range resp.Quotas {
				rows = append(rows, []string{q.Name, quotaLimit(q), fmt.Sprint(q.HeldUnits), fmt.Sprint(q.WindowUnits), fmt.Sprint(q.WaitingActions), quotaState(q)})
			}
			return a.print(resp, []string{"name", "limit", "held", "in windows", "waiting", "state"}, rows)
		}),
	}
}

func (a *app) quotaGetCmd() *cobra.Command {
	return &cobra.Command{
		Use: "get NAME", Short: "Show a quota and its use", Args: exactly("NAME"),
		Example: "  rota quota get openai",
		RunE: a.with(func(ctx context.Context, c *client.Client, args []string) error {
			resp, err := call(ctx, a, c.Quotas.GetQuota, &rotav1.GetQuotaRequest{Name: args[0]})
			if err != nil {
				return err
			}
			return a.printQuota(resp, resp.Quota)
		}),
	}
}

func (a *app) quotaUpdateCmd() *cobra.Command {
	req := &rotav1.UpdateQuotaRequest{}
	var adaptive bool
	cmd := &cobra.Command{
		Use: "update NAME", Short: "Change the limit or the keys of a quota, or whether it adapts", Args: exactly("NAME"),
		Long: `Changes the limit or the keys for future grants. With a lower limit, running actions do
not lose their units. There are no new grants until actions have returned enough units.
A new limit holds at once, also while an adaptive quota grants less. --adaptive=false ends a
pause. You cannot change the window of a quota: create another quota.`,
		Example: `  rota quota update openai --limit 120
  rota quota update openai --adaptive`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("adaptive") {
				req.Adaptive = &adaptive
			}
			if req.Limit == 0 && req.Keys == 0 && !req.Resume && req.Adaptive == nil {
				return usageErrorf("nothing to change; give --limit N, --keys N, --adaptive or --resume")
			}
			c, err := a.dial()
			if err != nil {
				return err
			}
			req.Name = args[0]
			resp, err := call(cmd.Context(), a, c.Quotas.UpdateQuota, req)
			if err != nil {
				return err
			}
			return a.printQuota(resp, resp.Quota)
		},
	}
	cmd.Flags().Uint32Var(&req.Limit, "limit", 0, "units of each key")
	cmd.Flags().Uint32Var(&req.Keys, "keys", 0, "number of pooled keys")
	cmd.Flags().BoolVar(&adaptive, "adaptive", false, "pause and grant less while the provider refuses calls")
	cmd.Flags().BoolVar(&req.Resume, "resume", false, "resume grants after a failed decision")
	return cmd
}

func (a *app) quotaDeleteCmd() *cobra.Command {
	return &cobra.Command{
		Use: "delete NAME", Aliases: []string{"rm"}, Short: "Delete a quota that no action names and whose window has passed", Args: exactly("NAME"),
		Example: "  rota quota delete openai",
		RunE: a.with(func(ctx context.Context, c *client.Client, args []string) error {
			resp, err := call(ctx, a, c.Quotas.DeleteQuota, &rotav1.DeleteQuotaRequest{Name: args[0]})
			if err != nil {
				return err
			}
			return a.printFields(resp, []field{{"deleted", args[0]}})
		}),
	}
}

func (a *app) printQuota(resp proto.Message, q *rotav1.Quota) error {
	back := ""
	if q.NextReturn != nil {
		back = "in " + formatDuration(q.NextReturn.AsDuration())
	}
	fields := []field{
		{"name", q.Name}, {"limit", quotaLimit(q)}, {"held", fmt.Sprint(q.HeldUnits)}, {"in windows", fmt.Sprint(q.WindowUnits)},
		{"next return", back}, {"waiting", fmt.Sprint(q.WaitingActions)}, {"adaptive", yesNo(q.Adaptive)},
		{"throttled attempts", fmt.Sprint(q.ThrottledAttempts)}, {"settled", settledText(q)}, {"state", quotaState(q)},
	}
	if len(q.KeyUses) > 1 {
		for _, use := range q.KeyUses {
			fields = append(fields, field{fmt.Sprintf("key %d", use.Key), quotaKeyText(q, use)})
		}
	}
	return a.printFields(resp, fields)
}

// quotaState says why units are granted less than the limit allows.
func quotaState(q *rotav1.Quota) string {
	all := uint64(q.Limit) * uint64(q.Keys)
	switch {
	case q.Halted != "":
		return "halted: " + q.Halted
	case q.PausedFor != nil:
		return fmt.Sprintf("paused for %s: the provider refused calls", formatDuration(q.PausedFor.AsDuration()))
	case q.OverdrawnUnits > 0:
		return fmt.Sprintf("overdrawn by %d: an overdrawn key grants nothing until enough of its units have come back", q.OverdrawnUnits)
	case q.EffectiveUnits > 0 && q.EffectiveUnits < all:
		return fmt.Sprintf("grants %d of %d: the provider refused calls; each success raises this", q.EffectiveUnits, all)
	case q.ThrottledAttempts > 0 && !q.Adaptive:
		return "the provider has refused calls: adapt with rota quota update " + q.Name + " --adaptive"
	}
	return ""
}

// quotaKeyText says "3 held, 0 in windows, grants 4, paused for 5s".
func quotaKeyText(q *rotav1.Quota, use *rotav1.QuotaKeyUse) string {
	text := fmt.Sprintf("%d held, %d in windows", use.HeldUnits, use.WindowUnits)
	if use.EffectiveUnits > 0 && use.EffectiveUnits < q.Limit {
		text += fmt.Sprintf(", grants %d", use.EffectiveUnits)
	}
	if use.PausedFor != nil {
		text += ", paused for " + formatDuration(use.PausedFor.AsDuration())
	}
	return text
}

// quotaLimit says "60 per 1m0s (sliding) for each of 3 keys".
func quotaLimit(q *rotav1.Quota) string {
	text := fmt.Sprintf("%d at once", q.Limit)
	if q.Window != nil {
		text = fmt.Sprintf("%d per %v", q.Limit, q.Window.AsDuration())
	}
	if q.Kind == rotav1.QuotaKind_QUOTA_KIND_SLIDING_WINDOW {
		text += " (sliding)"
	}
	if q.Keys > 1 {
		text += fmt.Sprintf(" for each of %d keys", q.Keys)
	}
	return text
}

// parseQuotas reads NAME or NAME=UNITS.
func parseQuotas(texts []string) (list []*rotav1.QuotaDemand, err error) {
	for _, text := range texts {
		name, units, given := strings.Cut(text, "=")
		d := &rotav1.QuotaDemand{Quota: name, Units: 1}
		if given {
			n, err := strconv.ParseUint(units, 10, 32)
			if err != nil || n == 0 {
				return nil, usageErrorf("--quota %q is not NAME or NAME=UNITS, with at least 1 unit", text)
			}
			d.Units = uint32(n)
		}
		list = append(list, d)
	}
	return list, nil
}
