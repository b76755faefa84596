package cli

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"rota/api/client"
	rotav1 "rota/api/gen/rota/v1"
)

// memberFlags are the flags about what belongs to a node group.
type memberFlags struct {
	nodes    uint32
	members  []string
	selector string
}

func (f *memberFlags) addTo(fs *pflag.FlagSet) {
	fs.Uint32Var(&f.nodes, "nodes", 0, "number of nodes of the group (default: the number of members, or 1)")
	fs.StringArrayVar(&f.members, "member", nil, "GPUs of a node that belong to the group, such as node-1:0-3, node-1:4, or node-1 for all; repeatable")
	fs.StringVar(&f.selector, "select", "", "nodes that replace lost members: labels and GPUs of each, such as gpu=h100,zone=a:4; without GPUs all of a node")
}

// apply returns what the flags say.
func (f *memberFlags) apply() (nodes uint32, members []*rotav1.GroupMember, selector *rotav1.MemberSelector, err error) {
	for _, text := range f.members {
		m, err := parseMember(text)
		if err != nil {
			return 0, nil, nil, err
		}
		members = append(members, m)
	}
	if f.selector != "" {
		if selector, err = parseSelector(f.selector); err != nil {
			return 0, nil, nil, err
		}
	}
	nodes = f.nodes
	if nodes == 0 {
		nodes = uint32(max(1, len(members)))
	}
	return nodes, members, selector, nil
}

// parseMember reads "node-1:0-3", "node-1:4" or "node-1".
func parseMember(text string) (*rotav1.GroupMember, error) {
	node, chunk, some := strings.Cut(text, ":")
	m := &rotav1.GroupMember{Node: node}
	if !some {
		return m, nil
	}
	from, to, several := strings.Cut(chunk, "-")
	first, err := strconv.ParseUint(from, 10, 8)
	last := first
	if err == nil && several {
		last, err = strconv.ParseUint(to, 10, 8)
	}
	if err != nil || node == "" || last < first {
		return nil, usageErrorf("--member: %q is not a node and its GPUs; write it like node-1:0-3, node-1:4 or node-1", text)
	}
	m.FirstGpu, m.Gpus = uint32(first), uint32(last-first+1)
	return m, nil
}

// parseSelector reads "gpu=h100,zone=a:4".
func parseSelector(text string) (*rotav1.MemberSelector, error) {
	labels, gpus, some := strings.Cut(text, ":")
	s := &rotav1.MemberSelector{Labels: make(map[string]string)}
	for _, label := range strings.Split(labels, ",") {
		key, value, ok := strings.Cut(label, "=")
		if !ok || key == "" {
			return nil, usageErrorf("--select: %q is not a label; write it like gpu=h100:4", label)
		}
		s.Labels[key] = value
	}
	if some {
		n, err := strconv.ParseUint(gpus, 10, 8)
		if err != nil {
			return nil, usageErrorf("--select: %q is not a number of GPUs; write it like gpu=h100:4", gpus)
		}
		s.Gpus = uint32(n)
	}
	return s, nil
}

func (a *app) nodeGroupGetCmd() *cobra.Command {
	return &cobra.Command{
		Use: "get NAME", Short: "Show a node group, its members and what it lacks", Args: exactly("NAME"),
		Example: "  rota node-group get train-a",
		RunE: a.with(func(ctx context.Context, c *client.Client, args []string) error {
			resp, err := call(ctx, a, c.Ledger.GetNodeGroup, &rotav1.GetNodeGroupRequest{Name: args[0]})
			if err != nil {
				return err
			}
			return a.printFields(resp, groupFields(resp.Group))
		}),
	}
}

func (a *app) nodeGroupSetMembersCmd() *cobra.Command {
	var members memberFlags
	cmd := &cobra.Command{
		Use: "set-members NAME", Short: "Say anew which GPUs belong to a node group", Args: exactly("NAME"),
		Long: `Gives a group other members, also one that has only a number of nodes so far. Name all that it
is to have. Actions that run on new members end first: until then the group lacks them, and no
other actions start there. A member cannot be taken away while a turn has it.`,
		Example: "  rota node-group set-members train-a --member node-1 --member node-2:0-3",
		RunE: a.with(func(ctx context.Context, c *client.Client, args []string) error {
			req := &rotav1.SetNodeGroupMembersRequest{Name: args[0]}
			var err error
			if req.Nodes, req.Members, req.Selector, err = members.apply(); err != nil {
				return err
			}
			resp, err := call(ctx, a, c.Ledger.SetNodeGroupMembers, req)
			if err != nil {
				return err
			}
			return a.printFields(resp, groupFields(resp.Group))
		}),
	}
	members.addTo(cmd.Flags())
	return cmd
}

// groupFields are a group as "get" shows it.
func groupFields(g *rotav1.NodeGroup) []field {
	fields := []field{{"name", g.GetName()}, {"nodes", fmt.Sprint(g.GetNodes())}, {"jobs", groupJobs(g)}, {"holder", groupHolder(g)}}
	if len(g.GetMembers()) == 0 {
		return fields
	}
	for _, m := range g.Members {
		text := memberName(m)
		if m.Lost != "" {
			text += " (" + m.Lost + ")"
		}
		fields = append(fields, field{"member", text})
	}
	if g.Selector != nil {
		fields = append(fields, field{"spares", labelsText(g.Selector.Labels) + " with " + gpusOfSelector(g.Selector)})
	}
	return append(fields,
		field{"degraded", orDash(g.Degraded)}, field{"open to actions", gapText(g)},
		field{"overruns", fmt.Sprint(g.Overruns)},
		field{"turns late", optionalDuration(g.Late)}, field{"turns waited", optionalDuration(g.Waited)},
	)
}

// memberName says "node-1:0-3".
func memberName(m *rotav1.GroupMember) string {
	if m.GetGpus() == 0 {
		return m.GetNode()
	}
	return m.Node + ":" + gpuRange(&rotav1.GpuChunk{First: m.FirstGpu, Gpus: m.Gpus})
}

func gpusOfSelector(s *rotav1.MemberSelector) string {
	if s.Gpus == 0 {
		return "all GPUs"
	}
	return fmt.Sprintf("%d GPUs", s.Gpus)
}

// gapText says how long actions may have the members.
func gapText(g *rotav1.NodeGroup) string {
	switch {
	case !g.GapOpen:
		return "no"
	case g.GapUntil == nil:
		return "yes, if their duration is known"
	}
	return "until " + formatTime(g.GapUntil)
}

// groupsOn says which groups GPUs of a node belong to, which turns have them, and the next
// reservation of each.
func groupsOn(node string, groups []*rotav1.NodeGroup, next map[string]string) string {
	var out []string
	for _, g := range groups {
		for _, m := range g.Members {
			if m.Node != node {
				continue
			}
			of := "all"
			if m.Gpus > 0 {
				of = gpuRange(&rotav1.GpuChunk{First: m.FirstGpu, Gpus: m.Gpus})
			}
			text := fmt.Sprintf("%s of %s", of, g.Name)
			if holder := groupHolder(g); holder != "-" {
				text += ": " + holder
			}
			if next[g.Name] != "" {
				text += "; next " + next[g.Name]
			}
			out = append(out, text)
		}
	}
	return strings.Join(out, ", ")
}
