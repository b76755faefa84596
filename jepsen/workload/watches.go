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
	defer w.env.watched.leave(w.conn.id)
	w.note(history.WatchNote{Kind: history.WatchBegan, Revision: w.after})
	for ctx.Err() == nil {
		w.goOn(w.stream(ctx))
		_ = backoff.Sleep(ctx, watchPause)
	}
}

// goOn decides where the next stream begins after one has ended.
func (w *watcher) goOn(err error) {
	_, reason := judge(err)
	if detail := client.Detail(err); detail.GetRevision() > 0 {
		lost := w.after
		w.id, w.after, w.resumed = int(w.env.watchers.Add(1)), detail.Revision, false
		w.note(history.WatchNote{Kind: history.WatchBegan, Revision: w.after, Lost: lost, Reason: reason})
		return
	}
	w.resumed = true
	w.note(history.WatchNote{Kind: history.WatchResumed, Revision: w.after, Reason: reason})
}

// note records where the watcher stands.
func (w *watcher) note(n history.WatchNote) {
	n.Watcher, n.Server, n.At = w.id, w.conn.id, w.env.Record.Now()
	w.env.Record.AddWatchNote(n)
	w.env.watched.move(w.conn.id, n.Revision)
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
	if n := len(events); n == 0 || events[n-1].Revision < m.Revision {
		w.note(history.WatchNote{Kind: history.WatchTold, Revision: m.Revision})
	} else {
		w.env.watched.move(w.conn.id, m.Revision)
	}
}

// positions are the revisions that the watchers at servers have come to.
type positions struct {
	mu sync.Mutex
	of map[string]uint64 // by server
}

func (p *positions) move(server string, revision uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.of == nil {
		p.of = make(map[string]uint64)
	}
	p.of[server] = revision
}

func (p *positions) leave(server string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.of, server)
}

// behind reports whether a watcher follows this server and has not come to a revision.
func (p *positions) behind(server string, revision uint64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	at, follows := p.of[server]
	return follows && at < revision
}
