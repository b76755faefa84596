package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"rota/api/client"
	rotav1 "rota/api/gen/rota/v1"
)

// eachGPU prints a line for each GPU: what has it, and why it is idle.
func (a *app) eachGPU(ctx context.Context, c *client.Client, pool string) error {
	all, err := a.gpuUses(ctx, c, pool)
	if err != nil {
		return err
	}
	if len(all.Nodes) == 0 {
		a.sayNoGPUs()
	}
	var rows [][]string
	for _, n := range all.Nodes {
		for _, g := range n.Gpus {
			rows = append(rows, []string{
				n.Node, fmt.Sprint(g.Number), holderText(g), orDash(strings.Join(g.Models, ", ")), orDash(memberOfText(g)), orDash(nextText(g)), g.IdleReason,
			})
		}
	}
	return a.print(all, []string{"node", "gpu", "holder", "models", "node group", "next reservation", "idle because"}, rows)
}

// gpuUses reads all pages.
func (a *app) gpuUses(ctx context.Context, c *client.Client, pool string) (*rotav1.ListGpusResponse, error) {
	req, all := &rotav1.ListGpusRequest{Pool: pool, PageSize: 1000}, &rotav1.ListGpusResponse{}
	err := pages(ctx, a, c.Residency.ListGpus, req, &req.PageToken, func(page *rotav1.ListGpusResponse) {
		all.Nodes = append(all.Nodes, page.Nodes...)
	})
	return all, err
}

func holderText(g *rotav1.Gpu) string {
	if g.Holder == nil {
		return "free"
	}
	return pinText(g.Holder)
}

// memberOfText says "trainers (the node is down)".
func memberOfText(g *rotav1.Gpu) string {
	if g.Lost != "" {
		return fmt.Sprintf("%s (%s)", g.NodeGroup, g.Lost)
	}
	return g.NodeGroup
}

// nextText says "default/job-a at 2026-01-02T03:04:05.000Z".
func nextText(g *rotav1.Gpu) string {
	if g.NextJob == "" {
		return ""
	}
	return fmt.Sprintf("%s at %s", g.NextJob, formatTime(g.NextTime))
}

// groupsWithNext returns the node groups, and the next reservation of each that has members.
func (a *app) groupsWithNext(ctx context.Context, c *client.Client, pool string) ([]*rotav1.NodeGroup, map[string]string, error) {
	resp, err := call(ctx, a, c.Ledger.ListNodeGroups, &rotav1.ListNodeGroupsRequest{})
	if err != nil {
		return nil, nil, err
	}
	if !slices.ContainsFunc(resp.Groups, func(g *rotav1.NodeGroup) bool { return len(g.Members) > 0 }) {
		return resp.Groups, nil, nil
	}
	all, err := a.gpuUses(ctx, c, pool)
	if err != nil {
		return nil, nil, err
	}
	return resp.Groups, nextOfGroups(all), nil
}

// nextOfGroups returns the next reservation of each node group that GPUs belong to.
func nextOfGroups(all *rotav1.ListGpusResponse) map[string]string {
	next := map[string]string{}
	for _, n := range all.Nodes {
		for _, g := range n.Gpus {
			if text := nextText(g); text != "" {
				next[g.NodeGroup] = text
			}
		}
	}
	return next
}
