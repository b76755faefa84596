package fsm

import (
	"cmp"
	"fmt"
	"math"
	"strings"

	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
)

// parseRolloutCommand reads
//
//	rollout policy=p groups=2 samples=2 redundant=1 staleness=1 name=x ns=team req=r1
//	close-rollout id=1
//	open rollout=1/0
//	sample traj=1 tokens=5 ref=s3://x keep=yes
//	batch policy=p step=1 groups=2
//	publish policy=p version=3
//	suspend-policy policy=p undo=yes
//
// and returns nil for another verb.
func parseRolloutCommand(verb string, a args) *logv1.Command {
	policy := cmp.Or(a.text("policy"), "p")
	switch verb {
	case "rollout":
		return &logv1.Command{Verb: &logv1.Command_CreateRollout{CreateRollout: &logv1.CreateRollout{
			Request: a.request(), Namespace: a.text("ns"), Name: a.text("name"), Policy: policy, Groups: uint32(a.num("groups", 1)),
			SamplesPerGroup: uint32(a.num("samples", 1)), Redundant: uint32(a.num("redundant", 0)), Staleness: uint32(a.num("staleness", 0)), PolicyOwner: a.text("owner"),
		}}}
	case "close-rollout":
		return &logv1.Command{Verb: &logv1.Command_CloseRollout{CloseRollout: &logv1.CloseRollout{Id: a.num("id", 0)}}}
	case "sample":
		return &logv1.Command{Verb: &logv1.Command_PutSample{PutSample: &logv1.PutSample{
			TrajectoryId: a.num("traj", 0), Reward: math.Float64bits(0.5), Tokens: a.num("tokens", 0), Reference: a.text("ref"), KeepOpen: a.text("keep") != "",
		}}}
	case "batch":
		return &logv1.Command{Verb: &logv1.Command_TakeBatch{TakeBatch: &logv1.TakeBatch{Policy: policy, Step: a.num("step", 0), Groups: uint32(a.num("groups", 1)), PolicyOwner: a.text("owner")}}}
	case "publish":
		return &logv1.Command{Verb: &logv1.Command_PublishVersion{PublishVersion: &logv1.PublishVersion{Policy: policy, Version: a.num("version", 0), Namespace: a.text("ns"), PolicyOwner: a.text("owner")}}}
	case "suspend-policy":
		return &logv1.Command{Verb: &logv1.Command_SuspendPolicy{SuspendPolicy: &logv1.SuspendPolicy{Policy: policy, Resume: a.text("undo") != "", PolicyOwner: a.text("owner")}}}
	}
	if c := parseRewardCommand(verb, a); c != nil {
		return c
	}
	return parseWorkerCommand(verb, a)
}

// membership reads rollout=ID/GROUP.
func (a args) membership() *logv1.RolloutMembership {
	text := a.text("rollout")
	if text == "" {
		return nil
	}
	c := &logv1.RolloutMembership{}
	if _, err := fmt.Sscanf(text, "%d/%d", &c.RolloutId, &c.Group); err != nil {
		a.t.Fatalf("rollout=%s: %v", text, err)
	}
	return c
}

var (
	rolloutStates = []string{"", "open", "closed", "closing"}
	memberStates  = []string{"", "running", "sampled", "redundant", "stale", "failed"}
)

// rollouts says what changed of rollouts, policies and batches.
func (s *story) rollouts(were *state.State) string {
	var out strings.Builder
	s.state.Policies("", func(p *state.Policy) bool {
		if old := were.Policy(p.Name); old == nil || *old != *p {
			owner := ""
			if ns := s.state.OwnerOf(p); ns != nil && ns.Name != "default" {
				owner = " of " + ns.Name
			}
			fmt.Fprintf(&out, "   policy %s%s: version %d, step %d, suspended %v, %d complete groups and %d samples wait\n",
				p.Name, owner, p.Version, p.Step, p.Suspended, s.state.CompleteCount(p.Name), s.state.BufferedCount(p.Name))
		}
		if b := s.state.Batch(p.Name); b != nil && b != were.Batch(p.Name) {
			fmt.Fprintf(&out, "   step %d of policy %s has the samples of trajectories %v\n", b.Step, p.Name, b.Samples)
		}
		return true
	})
	s.state.Rollouts(0, func(r *state.Rollout) bool {
		old := were.Rollout(r.ID)
		if old == nil || *old != *r {
			k := &r.Counts
			fmt.Fprintf(&out, "   rollout %d %s: %d opened, %d running, %d sampled, %d redundant, %d stale, %d failed; %d groups complete, %d delivered, %d dropped",
				r.ID, rolloutStates[r.State], k.Opened, k.Running, k.Sampled, k.Redundant, k.Stale, k.Failed, k.Complete, k.Delivered, r.Dropped())
			if r.Halted != "" {
				fmt.Fprintf(&out, "; halted: %s", r.Halted)
			}
			out.WriteString("\n")
		}
		s.groups(&out, were, r.ID)
		return true
	})
	were.Rollouts(0, func(r *state.Rollout) bool {
		if s.state.Rollout(r.ID) == nil {
			fmt.Fprintf(&out, "   rollout %d forgotten\n", r.ID)
		}
		return true
	})
	return out.String()
}

func (s *story) groups(out *strings.Builder, were *state.State, id state.RolloutID) {
	s.state.RolloutGroups(id, 0, func(g *state.RolloutGroup) bool {
		if were.RolloutGroup(g.Key) == g {
			return true
		}
		fmt.Fprintf(out, "   group %d of rollout %d:", g.Key.Index(), id)
		for _, m := range g.Members {
			fmt.Fprintf(out, " %d %s (version %d)", m.Trajectory, memberStates[m.State], m.Version)
		}
		switch {
		case g.Dropped:
			out.WriteString(", dropped")
		case g.Step != 0:
			fmt.Fprintf(out, ", given to step %d", g.Step)
		case g.Complete:
			out.WriteString(", complete")
		}
		out.WriteString("\n")
		return true
	})
}

// rolloutLine draws what trainers and agent loops say; IDs are near those that exist.
func rolloutLine(n func(string, int) int, s *story) string {
	m := s.state.Meta()
	policy := []string{"p", "p", "q"}[n("policy", 2)]
	id := n("rollout", int(m.LastRollout)+1)
	switch n("trainer", 9) {
	case 0:
		return fmt.Sprintf("rollout policy=%s owner=%s groups=%d samples=%d redundant=%d staleness=%d ns=%s req=%s expires=%ds", policy, []string{"", "", "team", "default"}[n("owner", 3)], 1+n("groups", 2), 1+n("samples", 2), n("redundant", 1),
			n("staleness", 2), []string{"", "", "", "team"}[n("ns", 3)], []string{"", "", "o1", "o2"}[n("req", 3)], n("expires", 200))
	case 1:
		if n("close", 3) == 0 {
			return fmt.Sprintf("close-rollout id=%d", id)
		}
		return fmt.Sprintf("suspend-policy policy=%s undo=%s", policy, []string{"", "yes"}[n("undo", 1)])
	case 2:
		version := uint64(n("version", 3))
		if p := s.state.Policy(policy); p != nil {
			version += p.Version
		}
		return fmt.Sprintf("publish policy=%s version=%d ns=%s owner=%s", policy, version, []string{"", "", "team", "default"}[n("ns", 3)], []string{"", "", "team"}[n("owner", 2)])
	case 3, 4:
		step := uint64(n("step", 2))
		if b := s.state.Batch(policy); b != nil {
			step += b.Step
		}
		return fmt.Sprintf("batch policy=%s step=%d groups=%d", policy, step, n("groups", 2))
	case 5, 6:
		return fmt.Sprintf("open rollout=%d/%d memory=%d idle=%ds", id, n("group", 3), 100*n("memory", 3), n("idle", 40))
	}
	return fmt.Sprintf("sample traj=%d tokens=%d ref=%s keep=%s", n("traj", int(m.LastTrajectory)+1), n("tokens", 9), []string{"", "x"}[n("ref", 1)], []string{"", "", "yes"}[n("keep", 2)])
}
