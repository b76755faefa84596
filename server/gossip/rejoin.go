package gossip

import (
	"context"
	"math/rand/v2"
	"net"
	"slices"
	"time"
)

// rejoin tries the seeds that are not members, at once and then again and
// again: often at first, while a cluster starts and any one seed may be the only
// one that knows the others, and rarely once a seed has been away for long.
func (g *Gossip) rejoin(ctx context.Context) {
	wait := min(firstInterval, g.every)
	for {
		missing := g.joinSeeds(ctx)
		if !missing {
			wait = g.every
		}
		if g.list.NumMembers() == 1 {
			wait = min(wait, firstInterval)
		}
		select {
		case <-ctx.Done():
			return
		// Members that lost each other together must not come back in step.
		case <-time.After(wait/2 + rand.N(wait)):
		}
		wait = min(2*wait, g.every)
	}
}

// joinSeeds tries each seed that is no member and reports whether one still is
// none.
func (g *Gossip) joinSeeds(ctx context.Context) (missing bool) {
	for _, seed := range g.seeds {
		if ctx.Err() != nil {
			return missing
		}
		if g.isMember(ctx, seed) {
			continue
		}
		if _, err := g.list.Join([]string{seed}); err != nil {
			g.logger.Debug("seed is not there yet", "seed", seed, "error", err)
			missing = true
		} else {
			g.logger.Info("joined", "seed", seed)
		}
	}
	return missing
}

// isMember reports whether every address that the seed stands for is that of
// a living member. A name that cannot be resolved is none.
func (g *Gossip) isMember(ctx context.Context, seed string) bool {
	host, port, err := net.SplitHostPort(seed)
	if err != nil {
		return false
	}
	ips, err := net.DefaultResolver.LookupHost(ctx, host)
	if err != nil || len(ips) == 0 {
		return false
	}
	var known []string
	for _, node := range g.list.Members() {
		known = append(known, node.Address())
	}
	return !slices.ContainsFunc(ips, func(ip string) bool {
		return !slices.Contains(known, net.JoinHostPort(ip, port))
	})
}
