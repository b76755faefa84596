package workload

import (
	"net/http"
	"sync/atomic"
	"time"

	"rota/api/codec"
	"rota/api/gen/rota/v1/rotav1connect"
	"rota/api/httpx"
)

// conn is one server, called directly: a call goes there, once.
type conn struct {
	id           string
	actions      rotav1connect.ActionServiceClient
	trajectories rotav1connect.TrajectoryServiceClient
	nodes        rotav1connect.NodeServiceClient
	quotas       rotav1connect.QuotaServiceClient
	engines      rotav1connect.EngineServiceClient
	jobs         rotav1connect.JobServiceClient
	turns        rotav1connect.TurnServiceClient
	ledger       rotav1connect.LedgerServiceClient
	rollouts     rotav1connect.RolloutServiceClient
	workers      rotav1connect.WorkerServiceClient
	rewards      rotav1connect.RewardServiceClient
	operator     rotav1connect.OperatorServiceClient

	trouble atomic.Int64 // when it last did not answer, in nanoseconds of the record's clock
}

// troubleLasts is for how long a server that did not answer is mostly left
// alone. Else all workers would soon wait for the one server that is cut off, and
// the others would have no load.
const troubleLasts = 2 * time.Second

func (c *conn) troubled(now int64) bool {
	at := c.trouble.Load()
	return at > 0 && now-at < int64(troubleLasts)
}

// connect makes a conn of each server. They connect at their first call.
func (env *Env) connect() (conns []*conn, http *http.Client) { return env.connectTo(env.Servers) }

func (env *Env) connectTo(servers []Server) (conns []*conn, http *http.Client) {
	http = httpx.NewClient(env.TLS)
	for _, s := range servers {
		base, codec := httpx.BaseURL(s.Addr, env.TLS != nil), codec.ForClient()
		conns = append(conns, &conn{
			id:           s.ID,
			actions:      rotav1connect.NewActionServiceClient(http, base, codec),
			trajectories: rotav1connect.NewTrajectoryServiceClient(http, base, codec),
			nodes:        rotav1connect.NewNodeServiceClient(http, base, codec),
			quotas:       rotav1connect.NewQuotaServiceClient(http, base, codec),
			engines:      rotav1connect.NewEngineServiceClient(http, base, codec),
			jobs:         rotav1connect.NewJobServiceClient(http, base, codec),
			turns:        rotav1connect.NewTurnServiceClient(http, base, codec),
			ledger:       rotav1connect.NewLedgerServiceClient(http, base, codec),
			rollouts:     rotav1connect.NewRolloutServiceClient(http, base, codec),
			workers:      rotav1connect.NewWorkerServiceClient(http, base, codec),
			rewards:      rotav1connect.NewRewardServiceClient(http, base, codec),
			operator:     rotav1connect.NewOperatorServiceClient(http, base, codec),
		})
	}
	return conns, http
}
