package fault

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"rota/api/backoff"
	"rota/jepsen/cluster"
)

// cut is a direction in which packets are lost.
type cut struct{ from, to []*cluster.Member }

// apart are the cuts between two groups.
func apart(a, b []*cluster.Member) []cut { return []cut{{a, b}, {b, a}} }

// halves splits servers and agents at random: one side has a majority.
func halves(_ context.Context, w *World) (*Injection, error) {
	servers, agents := shuffled(w.Rand, w.Cluster.Servers), shuffled(w.Rand, w.Cluster.Agents)
	few, half := (len(servers)-1)/2, len(agents)/2
	minority := slices.Concat(servers[:few], agents[:half])
	majority := slices.Concat(servers[few:], agents[half:])
	return partition(w, names(minority), apart(minority, majority)...)
}

// leaderAlone cuts the leader off from everybody. It goes on leading until it
// notices.
func leaderAlone(ctx context.Context, w *World) (*Injection, error) {
	leader, err := w.Cluster.Leader(ctx)
	if err != nil {
		return nil, err
	}
	return partition(w, names([]*cluster.Member{leader}), apart([]*cluster.Member{leader}, others(w.Cluster.Members(), leader))...)
}

// bridge splits the servers into two groups that have only one server in common.
func bridge(_ context.Context, w *World) (*Injection, error) {
	servers := shuffled(w.Rand, w.Cluster.Servers)
	half := (len(servers) - 1) / 2
	left, right := servers[1:1+half], servers[1+half:]
	inj, err := partition(w, names(servers[:1]), apart(left, right)...)
	if inj != nil {
		inj.Detail = strings.Join(names(left), " ") + " | " + strings.Join(names(right), " ")
	}
	return inj, err
}

// ring leaves each server a majority of its own, and no two the same.
func ring(_ context.Context, w *World) (*Injection, error) {
	servers := shuffled(w.Rand, w.Cluster.Servers)
	cuts := ringCuts(servers)
	if len(cuts) == 0 {
		return nil, fmt.Errorf("a ring of %d servers is whole: the scenario needs five", len(servers))
	}
	return partition(w, names(servers), cuts...)
}

// ringCuts are what is missing if each sees only its neighbours on a ring, as
// many as make a majority with itself.
func ringCuts(servers []*cluster.Member) (cuts []cut) {
	n, reach := len(servers), len(servers)/4
	for i, s := range servers {
		for j, other := range servers {
			if distance := min((j-i+n)%n, (i-j+n)%n); reach > 0 && distance > reach {
				cuts = append(cuts, cut{[]*cluster.Member{s}, []*cluster.Member{other}})
			}
		}
	}
	return cuts
}

// leaderDeaf loses what is sent to the leader, which goes on being heard.
func leaderDeaf(ctx context.Context, w *World) (*Injection, error) {
	leader, err := w.Cluster.Leader(ctx)
	if err != nil {
		return nil, err
	}
	return partition(w, []string{leader.Name}, cut{others(w.Cluster.Servers, leader), []*cluster.Member{leader}})
}

// leaderMute loses what the leader sends, which goes on hearing.
func leaderMute(ctx context.Context, w *World) (*Injection, error) {
	leader, err := w.Cluster.Leader(ctx)
	if err != nil {
		return nil, err
	}
	return partition(w, []string{leader.Name}, cut{[]*cluster.Member{leader}, others(w.Cluster.Servers, leader)})
}

// agentCut cuts an agent off from all servers until it is taken for lost.
func agentCut(_ context.Context, w *World) (*Injection, error) {
	agent := pick(w.Rand, w.Cluster.Agents)
	return loseAgent(w, agent, apart([]*cluster.Member{agent}, w.Cluster.Servers)...)
}

// agentDeaf loses what servers send to an agent.
func agentDeaf(_ context.Context, w *World) (*Injection, error) {
	agent := pick(w.Rand, w.Cluster.Agents)
	return loseAgent(w, agent, cut{w.Cluster.Servers, []*cluster.Member{agent}})
}

// agentMute loses what an agent sends.
func agentMute(_ context.Context, w *World) (*Injection, error) {
	agent := pick(w.Rand, w.Cluster.Agents)
	return loseAgent(w, agent, cut{[]*cluster.Member{agent}, w.Cluster.Servers})
}

// agentCutLeaderKilled cuts an agent off and kills the leader meanwhile: the new
// one knows nothing of the agent's lease.
func agentCutLeaderKilled(ctx context.Context, w *World) (*Injection, error) {
	cutOff, err := agentCut(ctx, w)
	if err != nil {
		return nil, err
	}
	_ = backoff.Sleep(ctx, w.Lease()/2)
	killed, err := killLeader(ctx, w)
	if err != nil {
		_, mend := cutOff.End(ctx)
		return nil, errors.Join(err, mend)
	}
	return &Injection{
		Target: append(cutOff.Target, killed.Target...),
		End: func(ctx context.Context) (string, error) {
			// The old leader is back before the end of the cut is looked for: it may
			// take part in what is decided about the agent.
			leader, err := killed.End(ctx)
			agent, errAgent := cutOff.End(ctx)
			if err := errors.Join(err, errAgent); err != nil || leader == "" || agent == "" {
				return "", err
			}
			return leader + "; " + agent, nil
		},
	}, nil
}

// loseAgent makes cuts and waits at their end until the agent is taken for lost, and
// then for as long as its work needs to start elsewhere: what went on where it was is
// seen by then.
func loseAgent(w *World, agent *cluster.Member, cuts ...cut) (*Injection, error) {
	inj, err := partition(w, []string{agent.Name}, cuts...)
	if err != nil {
		return nil, err
	}
	mend := inj.End
	inj.End = func(ctx context.Context) (string, error) {
		how, err := lost(ctx, w, agent)
		_ = backoff.Sleep(ctx, w.Lease()/2)
		packets, errMend := mend(ctx)
		if err := errors.Join(err, errMend); err != nil || packets == "" {
			return "", err
		}
		return packets + how, nil
	}
	return inj, nil
}

// partition makes cuts until the end of the fault. Packets that were dropped
// prove it.
func partition(w *World, target []string, cuts ...cut) (*Injection, error) {
	net := w.Cluster.Net
	before, err := net.Dropped()
	if err != nil {
		return nil, err
	}
	end := func(context.Context) (string, error) {
		after, err := net.Dropped()
		for _, c := range cuts {
			err = errors.Join(err, net.Mend(c.from, c.to))
		}
		if after == before {
			return "", err
		}
		return fmt.Sprintf("%d packets dropped", after-before), err
	}
	for _, c := range cuts {
		if err := net.Cut(c.from, c.to); err != nil {
			_, mend := end(context.Background())
			return nil, errors.Join(err, mend)
		}
	}
	return &Injection{Target: target, End: end}, nil
}

// Lease is that of the cluster's nodes.
func (w *World) Lease() time.Duration { return w.Config.Lease }
