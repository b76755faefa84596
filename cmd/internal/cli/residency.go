package cli

import (
	"context"
	"fmt"
	"math"
	"strings"

	"github.com/spf13/cobra"

	"rota/api/client"
	rotav1 "rota/api/gen/rota/v1"
)

func (a *app) residencyCmd() *cobra.Command {
	return group("residency", "See which models and deployments are where, and why",
		a.reads(a.residencyListCmd()), a.reads(a.residencyGetCmd()), a.reads(a.residencyExplainCmd()))
}

func (a *app) residencyListCmd() *cobra.Command {
	req := &rotav1.ListResidencyRequest{PageSize: 1000}
	cmd := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List which models and deployments are where", Args: exactly(),
		Long: `Lists models by node and GPUs, then deployments of jobs by node group. The state of a model is
what the node has said of its engine; "bookkeeping only" is a model without an engine, which the
command of the action loads. The cost is what the scheduler compares when models must leave: the
model with the lowest cost leaves first.`,
		Example: "  rota residency list --node node-1\n  rota residency list --model judge-7b\n  rota residency list --job job-a",
		RunE: a.with(func(ctx context.Context, c *client.Client, _ []string) error {
			req.Namespace = a.settings.namespace
			all := &rotav1.ListResidencyResponse{}
			err := pages(ctx, a, c.Residency.ListResidency, req, &req.PageToken, func(page *rotav1.ListResidencyResponse) {
				all.Rows = append(all.Rows, page.Rows...)
			})
			if err != nil {
				return err
			}
			rows := make([][]string, 0, len(all.Rows))
			for _, r := range all.Rows {
				rows = append(rows, []string{r.WorkingSet, placeText(r), residencyState(r), orDash(usedText(r)), orDash(costText(r)), orDash(pinsText(r))})
			}
			return a.print(all, []string{"working set", "place", "state", "last use", "cost", "used by"}, rows)
		}),
	}
	fs := cmd.Flags()
	fs.StringVar(&req.Node, "node", "", "list only what is on this node")
	fs.StringVar(&req.Model, "model", "", "list only this model")
	fs.StringVar(&req.Job, "job", "", "list only deployments of this job")
	return cmd
}

func (a *app) residencyGetCmd() *cobra.Command {
	return &cobra.Command{
		Use: "get WORKING-SET PLACE", Short: "Show one model on its GPUs, or one deployment on its node group", Args: exactly("WORKING-SET", "PLACE"),
		Long:    "A model is named with its node and GPUs, a deployment with its node group, as in: rota residency list",
		Example: "  rota residency get judge-7b node-1:0-1\n  rota residency get job-a/actor trainers",
		RunE: a.with(func(ctx context.Context, c *client.Client, args []string) error {
			req, err := residencyRequest(args[0], args[1], a.settings.namespace)
			if err != nil {
				return err
			}
			resp, err := call(ctx, a, c.Residency.GetResidency, req)
			if err != nil {
				return err
			}
			return a.printFields(resp, residencyFields(resp.Row))
		}),
	}
}

// residencyRequest names a row by what it is and where: on "node-1:0-1" a model is, on
// "trainers" a deployment.
func residencyRequest(what, where, namespace string) (*rotav1.GetResidencyRequest, error) {
	req := &rotav1.GetResidencyRequest{WorkingSet: what}
	if strings.Contains(where, ":") {
		m, err := parseMember(where)
		if err != nil {
			return nil, usageErrorf("%q is not a node and its GPUs; write them like node-1:0-3 or node-1:4", where)
		}
		req.Node, req.Chunk = m.Node, &rotav1.GpuChunk{First: m.FirstGpu, Gpus: m.Gpus}
		return req, nil
	}
	req.NodeGroup, req.Namespace = where, namespace
	if strings.Count(what, "/") == 2 { // as the table has it
		req.Namespace, req.WorkingSet, _ = strings.Cut(what, "/")
	}
	return req, nil
}

// residencyFields are a row as "get" shows it.
func residencyFields(r *rotav1.Residency) []field {
	fields := []field{{"working set", r.GetWorkingSet()}, {"place", placeText(r)}, {"state", residencyState(r)}}
	if g := r.GetGroup(); g != nil {
		fields = append(fields, field{"switching since", formatTime(g.SwitchingSince)}, field{"set-up", optionalDuration(g.SetUp)})
		for _, m := range g.Members {
			text := memberName(m)
			if m.Lost != "" {
				text += " (" + m.Lost + ")"
			}
			fields = append(fields, field{"member", text})
		}
		return append(fields, field{"used by", orDash(pinsText(r))})
	}
	c := r.GetChunk()
	return append(fields,
		field{"state since", formatTime(c.GetObservedTime())}, field{"message", c.GetMessage()},
		field{"memory of each GPU", sizeOrNone(c.GetMemoryBytes())}, field{"last use", formatTime(c.GetLastUseTime())},
		field{"uses", countOrNone(c.GetUses())}, field{"eviction cost", costText(r)},
		field{"age of the class", optionalDuration(c.GetClassAge())}, field{"used by", orDash(pinsText(r))},
	)
}

func sizeOrNone(bytes uint64) string {
	if bytes == 0 {
		return ""
	}
	return formatSize(bytes)
}

func countOrNone(n uint32) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprint(n)
}

// placeText says "node-1:0-3", or the name of a node group.
func placeText(r *rotav1.Residency) string {
	if g := r.GetGroup(); g != nil {
		return g.NodeGroup
	}
	return r.GetChunk().GetNode() + ":" + gpuRange(r.GetChunk().GetChunk())
}

// residencyState says "ready", "bookkeeping only" or "resident, awake".
func residencyState(r *rotav1.Residency) string {
	if g := r.GetGroup(); g != nil {
		var out []string
		for _, s := range []struct {
			is   bool
			text string
		}{{g.Switching, "switching"}, {g.Resident, "resident"}, {g.Awake, "awake"}} {
			if s.is {
				out = append(out, s.text)
			}
		}
		if len(out) == 0 {
			return "not resident"
		}
		return strings.Join(out, ", ")
	}
	c := r.GetChunk()
	switch said := c.GetObserved(); {
	case said != rotav1.EngineState_ENGINE_STATE_UNSPECIFIED && c.GetDesired():
		return engineStateText(said)
	case said != rotav1.EngineState_ENGINE_STATE_UNSPECIFIED:
		return engineStateText(said) + ", not resident"
	case c.GetEngineDeclared():
		return "not reported yet"
	}
	return "bookkeeping only"
}

func usedText(r *rotav1.Residency) string { return formatTime(r.GetChunk().GetLastUseTime()) }

func costText(r *rotav1.Residency) string { return optionalDuration(r.GetChunk().GetEvictionCost()) }

// pinsText says "action 7, turn 3 of default/job-a/actor".
func pinsText(r *rotav1.Residency) string {
	var out []string
	for _, p := range r.GetPins() {
		text := pinText(p)
		if !p.Uses {
			text += " (other work)"
		}
		out = append(out, text)
	}
	return strings.Join(out, ", ")
}

func pinText(p *rotav1.ResidencyPin) string {
	switch id := p.GetTurnId(); {
	case p.GetActionId() != 0:
		return fmt.Sprintf("action %d", p.GetActionId())
	case id == 0:
		return strings.TrimSpace("hooks for " + p.GetDeployment())
	case p.GetDeployment() == "":
		return fmt.Sprintf("turn %d", id)
	default:
		return fmt.Sprintf("turn %d of %s", id, p.GetDeployment())
	}
}

func (a *app) residencyExplainCmd() *cobra.Command {
	var (
		req    rotav1.ExplainModelRequest
		gpus   []uint
		memory size
	)
	cmd := &cobra.Command{
		Use: "explain MODEL", Short: "Explain which GPUs an action would get for a model, and what would be evicted", Args: exactly("MODEL"),
		Long: `Says what would become of an action that names the model if it came now. The scheduler decides
that on a copy of its state, so nothing changes. The action asks for nothing but GPUs.`,
		Example: "  rota residency explain judge-7b\n  rota residency explain judge-7b --gpus 1,2 --gpu-memory 40GiB",
		RunE: a.with(func(ctx context.Context, c *client.Client, args []string) error {
			req.Model, req.Namespace, req.MemoryBytes = args[0], a.settings.namespace, uint64(memory)
			for _, k := range gpus {
				req.Gpus = append(req.Gpus, uint32(min(k, math.MaxUint32)))
			}
			resp, err := call(ctx, a, c.Residency.ExplainModel, &req)
			if d := client.Detail(err); d.GetReason() == "UNSATISFIABLE" { // the command line is right, and the cluster lacks something
				return &codeError{exitError, fmt.Errorf("such an action would be refused: %s\nSee the GPUs that there are: rota gpu list", ownWords(d.Reason, d.Message))}
			}
			if err != nil {
				return err
			}
			return a.printFields(resp, explainFields(args[0], resp))
		}),
	}
	fs := cmd.Flags()
	fs.UintSliceVar(&gpus, "gpus", []uint{1}, "numbers of GPUs that the action can use, from 1, 2, 4 and 8, such as 1,2,4")
	fs.StringVar(&req.GpuClass, "gpu-class", "", "class of the GPUs, such as H100 (default: the only class of the pool)")
	fs.Var(&memory, "gpu-memory", "memory that the model uses on each GPU, such as 20GiB; 0: all")
	fs.StringVar(&req.Class, "class", "", "class of the action, which says how long it takes")
	fs.StringVar(&req.Pool, "pool", "", `pool of the action (default "default")`)
	return cmd
}

// explainFields tells an explanation.
func explainFields(model string, e *rotav1.ExplainModelResponse) []field {
	fields := []field{{"model", model}}
	for _, r := range e.Resident {
		fields = append(fields, field{"resident", fmt.Sprintf("%s (%s)", placeText(r), residencyState(r))})
	}
	if len(e.Resident) == 0 {
		fields = append(fields, field{"resident", "nowhere"})
	}
	if p := e.Placement; p != nil {
		fields = append(fields, field{"would get", placementText(p)})
		for _, r := range p.Evicted {
			fields = append(fields, field{"would evict", withCost(r)})
		}
	} else {
		fields = append(fields, field{"would wait", e.WaitingFor})
	}
	for _, s := range e.Spared {
		fields = append(fields, field{"would stay", withCost(s.Row) + ": " + s.Reason})
	}
	if e.SparedMore {
		fields = append(fields, field{"would stay", "and more; see: rota residency list"})
	}
	return fields
}

// placementText says "node-1:0-1, where the model is resident".
func placementText(p *rotav1.ModelPlacement) string {
	text := p.Node + ":" + gpuRange(p.Chunk)
	switch {
	case p.Hit:
		return text + ", where the model is resident"
	case p.SetUp == nil:
		return text + ", after a set-up of unknown length"
	}
	return text + ", after a set-up of " + optionalDuration(p.SetUp)
}

// withCost says "quick on node-1:2, cost 2s".
func withCost(r *rotav1.Residency) string {
	text := r.GetWorkingSet() + " on " + placeText(r)
	if cost := costText(r); cost != "" {
		text += ", cost " + cost
	}
	return text
}
