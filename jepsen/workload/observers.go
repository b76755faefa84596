package workload

import (
	"context"
	"sync"
	"time"

	rotav1 "rota/api/gen/rota/v1"
	"rota/jepsen/history"
)

// observers samples every server at a rate, whatever the others do.
func observers(ctx context.Context, env *Env, rate float64) error {
	if len(env.Servers) == 0 {
		return errNoServers
	}
	conns, http := env.connect()
	defer http.CloseIdleConnections()
	interval := time.Duration(float64(time.Second) / rate)
	var all sync.WaitGroup
	for _, c := range conns {
		w := env.newWorker([]*conn{c})
		all.Go(func() {
			repeat(ctx, interval, w.rand, func(ctx context.Context) {
				if s, _ := env.sample(ctx, c, 0); s.At > 0 {
					env.Record.AddSample(s)
				}
			})
		})
	}
	all.Wait()
	return nil
}

// sample asks one server about itself once it has applied an index. What it has
// said is returned even if it does not come to its hash.
func (env *Env) sample(ctx context.Context, c *conn, minIndex uint64) (s history.Sample, err error) {
	ctx, cancel := context.WithTimeout(ctx, env.timeout())
	defer cancel()
	status, err := c.operator.GetStatus(ctx, &rotav1.GetStatusRequest{})
	if err != nil {
		return s, err
	}
	s = history.Sample{
		At: env.Record.Now(), Server: c.id, LeaderID: status.LeaderId, Term: status.Term,
		Applied: status.AppliedIndex, Commit: status.CommitIndex, Quarantined: status.Quarantined,
	}
	hash, err := c.operator.GetStateHash(ctx, &rotav1.GetStateHashRequest{MinIndex: minIndex})
	s.HashIndex, s.Hash = hash.GetIndex(), hash.GetHash()
	return s, err
}
