package workload

import (
	"context"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"rota/api/backoff"
	"rota/api/client"
	rotav1 "rota/api/gen/rota/v1"
	"rota/jepsen/history"
)

// watchPause is between a loss and the next try.
const watchPause = 200 * time.Millisecond

// watcher follows the events of all namespaces at one server.
type watcher struct {
	env  *Env
	conn *conn
	// id is new for each sequence without gaps: when the server no longer keeps
	// what comes next, another watcher begins.
	id      int
	after   uint64
	resumed bool
}

// watches follows all servers from the first event on. It has no rate: events
// come when they come.
func watches(ctx context.Context, env *Env, _ float64) error {
	if len(env.Servers) == 0 {
		return errNoServers
	}
	conns, http := env.connect()
	defer http.CloseIdleConnections()
	var all sync.WaitGroup
	for _, c := range conns {
		w := &watcher{env: env, conn: c, id: int(env.watchers.Add(1))}
		all.Go(func() { w.run(ctx) })
	}
	all.Wait()
	return nil
}

func (w *watcher) run(ctx context.Context) {
	for ctx.Err() == nil {
		err := w.stream(ctx)
		w.resumed = true
		if detail := client.Detail(err); detail.GetRevision() > 0 {
			w.id, w.after, w.resumed = int(w.env.watchers.Add(1)), detail.Revision, false
		}
		_ = backoff.Sleep(ctx, watchPause)
	}
}

// stream follows one stream to its end.
func (w *watcher) stream(ctx context.Context) error {
	stream, err := w.conn.actions.WatchActions(ctx, &rotav1.WatchActionsRequest{
		Namespace: "*", AfterRevision: proto.Uint64(w.after),
	})
	if err != nil {
		return err
	}
	defer stream.Close()
	for stream.Receive() {
		w.received(stream.Msg())
	}
	return stream.Err()
}

func (w *watcher) received(m *rotav1.WatchActionsResponse) {
	now := w.env.Record.Now()
	events := make([]history.WatchEvent, len(m.Events))
	for i, e := range m.Events {
		events[i] = history.WatchEvent{
			Watcher: w.id, Server: w.conn.id, At: now, Resumed: w.resumed,
			Revision: e.Revision, Action: e.ActionId, State: actionState(e.State), Attempt: e.Attempt,
		}
		w.resumed = false
	}
	w.env.Record.AddWatch(events...)
	w.after = m.Revision
}
