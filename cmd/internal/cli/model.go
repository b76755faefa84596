package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"rota/api/client"
	rotav1 "rota/api/gen/rota/v1"
)

func (a *app) modelCmd() *cobra.Command {
	return group("model", "See the models that actions on GPUs name", a.reads(a.modelListCmd()), a.reads(a.modelGetCmd()))
}

func (a *app) modelListCmd() *cobra.Command {
	return &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List models: where they are, and how many actions name them", Args: exactly(),
		Long: `Lists the models that are resident, have an engine, or are named by an action that waits for
GPUs or runs on them.`,
		Example: "  rota model list",
		RunE: a.with(func(ctx context.Context, c *client.Client, _ []string) error {
			req, all := &rotav1.ListModelsRequest{PageSize: 1000}, &rotav1.ListModelsResponse{}
			err := pages(ctx, a, c.Residency.ListModels, req, &req.PageToken, func(page *rotav1.ListModelsResponse) {
				all.Models = append(all.Models, page.Models...)
			})
			if err != nil {
				return err
			}
			rows := make([][]string, 0, len(all.Models))
			for _, m := range all.Models {
				rows = append(rows, []string{m.Name, orDash(variantsText(m)), engineOf(m), orDash(setUpOf(m)), waitingText(m), fmt.Sprint(m.RunningActions)})
			}
			return a.print(all, []string{"model", "resident", "engine", "set-up", "waiting", "running"}, rows)
		}),
	}
}

func (a *app) modelGetCmd() *cobra.Command {
	return &cobra.Command{
		Use: "get MODEL", Short: "Show one model: where it is, and which actions name it", Args: exactly("MODEL"),
		Example: "  rota model get judge-7b",
		RunE: a.with(func(ctx context.Context, c *client.Client, args []string) error {
			resp, err := call(ctx, a, c.Residency.GetModel, &rotav1.GetModelRequest{Model: args[0]})
			if err != nil {
				return err
			}
			return a.printFields(resp, modelFields(resp))
		}),
	}
}

// modelFields are a model as "get" shows it.
func modelFields(resp *rotav1.GetModelResponse) []field {
	m := resp.GetModel()
	fields := []field{
		{"model", m.GetName()}, {"engine", engineOf(m)}, {"set-up declared", optionalDuration(m.GetSetUpDeclared())},
		{"set-up measured", measured(m)},
	}
	for _, v := range m.GetVariants() {
		fields = append(fields, field{"on " + plural(int(v.Gpus), "GPU"), variantText(v)})
	}
	for _, r := range resp.GetResident() {
		fields = append(fields, field{"resident", fmt.Sprintf("%s (%s)", placeText(r), residencyState(r))})
	}
	return append(fields,
		field{"waiting actions", waitingText(m) + idsText(resp.GetWaitingActionIds())},
		field{"running actions", fmt.Sprint(m.GetRunningActions()) + idsText(resp.GetRunningActionIds())})
}

// variantsText says "2 on 1 GPU, 1 on 4 GPUs".
func variantsText(m *rotav1.Model) string {
	var out []string
	for _, v := range m.GetVariants() {
		if v.Chunks > 0 {
			out = append(out, fmt.Sprintf("%d on %s", v.Chunks, plural(int(v.Gpus), "GPU")))
		}
	}
	return strings.Join(out, ", ")
}

// variantText says "resident on 2 chunks, 1 in use, engines: 1 ready, 1 asleep, 20 GiB of each GPU".
func variantText(v *rotav1.ModelVariant) string {
	out := []string{"resident on " + plural(int(v.Chunks), "chunk"), fmt.Sprintf("%d in use", v.Used)}
	var engines []string
	for _, n := range []struct {
		count uint32
		what  string
	}{{v.Ready, "ready"}, {v.Preparing, "preparing"}, {v.Asleep, "asleep"}, {v.Failed, "failed"}} {
		if n.count > 0 {
			engines = append(engines, fmt.Sprintf("%d %s", n.count, n.what))
		}
	}
	if len(engines) > 0 {
		out = append(out, "engines: "+strings.Join(engines, ", "))
	}
	if v.MemoryBytes > 0 {
		out = append(out, formatSize(v.MemoryBytes)+" of each GPU")
	}
	return strings.Join(out, ", ")
}

func engineOf(m *rotav1.Model) string {
	if m.GetDriver() == rotav1.EngineDriver_ENGINE_DRIVER_UNSPECIFIED {
		return "none"
	}
	return enumWord(m.Driver, "ENGINE_DRIVER_")
}

// setUpOf is the measured set-up if there is one, else the declared one.
func setUpOf(m *rotav1.Model) string {
	if m.GetSetUps() > 0 {
		return optionalDuration(m.SetUpMeasured)
	}
	return optionalDuration(m.GetSetUpDeclared())
}

func measured(m *rotav1.Model) string {
	if m.GetDriver() == rotav1.EngineDriver_ENGINE_DRIVER_UNSPECIFIED {
		return ""
	}
	return measuredText(&rotav1.Engine{SetUp: m.SetUpMeasured, SetUps: m.SetUps})
}

func waitingText(m *rotav1.Model) string {
	if m.GetWaitingIncomplete() {
		return fmt.Sprintf("at least %d", m.GetWaitingActions())
	}
	return fmt.Sprint(m.GetWaitingActions())
}

// idsText says " (7, 9)".
func idsText(ids []uint64) string {
	if len(ids) == 0 {
		return ""
	}
	return " (" + strings.Trim(strings.ReplaceAll(fmt.Sprint(ids), " ", ", "), "[]") + ")"
}

func listModelNames(ctx context.Context, c *client.Client, _ *settings) (all []string, err error) {
	resp, err := c.Residency.ListModels(ctx, &rotav1.ListModelsRequest{PageSize: completionsMax, AllowStale: true})
	for _, m := range resp.GetModels() {
		all = append(all, m.Name+"\t"+variantsText(m))
	}
	return all, err
}
