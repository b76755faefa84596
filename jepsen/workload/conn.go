package workload

import (
	"net/http"

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
	operator     rotav1connect.OperatorServiceClient
}

// connect makes a conn of each server. They connect at their first call.
func (env *Env) connect() (conns []*conn, http *http.Client) {
	http = httpx.NewClient(env.TLS)
	for _, s := range env.Servers {
		base, codec := httpx.BaseURL(s.Addr, env.TLS != nil), codec.ForClient()
		conns = append(conns, &conn{
			id:           s.ID,
			actions:      rotav1connect.NewActionServiceClient(http, base, codec),
			trajectories: rotav1connect.NewTrajectoryServiceClient(http, base, codec),
			nodes:        rotav1connect.NewNodeServiceClient(http, base, codec),
			operator:     rotav1connect.NewOperatorServiceClient(http, base, codec),
		})
	}
	return conns, http
}
