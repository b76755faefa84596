package e2b

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"connectrpc.com/connect"

	"rota/api/gen/e2b/filesystem"
	rotav1 "rota/api/gen/rota/v1"
)

const (
	// watchEvery is how often a watched directory is listed.
	watchEvery = 250 * time.Millisecond
	// watchPauses is how many times as long as a list took the next one waits for at least.
	watchPauses = 3
	// watchersMax bounds the streams and the watchers of a server.
	watchersMax = 256
	// seenBytesMax bounds what they remember. seenBytes is what a file takes beside its name,
	// watchBytes what a watch takes without files.
	seenBytesMax          = 256 << 20
	seenBytes, watchBytes = 160, 16 << 10
	// watcherIdle is when a watcher is forgotten that is not asked for events.
	watcherIdle = 10 * time.Minute
)

// seen is what is remembered of a file to notice a change.
type seen struct {
	kind    rotav1.FileType
	size    uint64
	mode    uint32
	changed time.Time
}

// watch is a directory as it was listed last. Changes are found by comparing lists, as the
// agents have no events for files.
type watch struct {
	path      string // relative
	depth     uint32
	withEntry bool
	namespace string
	files     map[string]seen

	mu sync.Mutex
	// memory has the bytes that are held for files, until the watch is forgotten.
	memory    *fair
	bytes     int64
	forgotten bool
}

// remember replaces what the directory was like, if there is memory for it.
func (w *watch) remember(files map[string]seen) error {
	bytes := int64(watchBytes)
	for name := range files {
		bytes += int64(len(name)) + seenBytes
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.forgotten {
		return connect.NewError(connect.CodeNotFound, errors.New("the watcher was removed"))
	}
	if !w.memory.change(w.namespace, w.bytes, bytes) {
		return errWatchers
	}
	w.files, w.bytes = files, bytes
	return nil
}

// forget gives back the memory.
func (w *watch) forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.memory.change(w.namespace, w.bytes, 0)
	w.bytes, w.forgotten = 0, true
}

// newWatch lists a directory for the first time. The watch must be forgotten.
func (all *watchers) newWatch(ctx context.Context, s *sandbox, dir string, recursive, withEntry bool) (*watch, error) {
	relative, err := inside(dir)
	if err != nil {
		return nil, err
	}
	entry, err := s.stat(ctx, dir)
	if err != nil {
		return nil, err
	}
	if entry.Type != filesystem.FileType_FILE_TYPE_DIRECTORY {
		return nil, invalid("%s is not a directory", entry.Path)
	}
	w := &watch{path: relative, depth: 1, withEntry: withEntry, namespace: s.namespace, memory: all.memory}
	if recursive {
		w.depth = math.MaxUint32
	}
	files, _, err := w.list(ctx, s)
	if err != nil {
		return nil, err
	}
	return w, w.remember(files)
}

// list lists the directory by paths below it.
func (w *watch) list(ctx context.Context, s *sandbox) (map[string]seen, map[string]*rotav1.File, error) {
	now, files := map[string]seen{}, map[string]*rotav1.File{}
	err := s.walk(ctx, w.path, w.depth, func(p string, f *rotav1.File) {
		name, err := filepath.Rel(outside(w.path), outside(p))
		if err != nil {
			return // it is below
		}
		files[name] = f
		now[name] = seen{f.Type, f.SizeBytes, f.Mode, f.ChangeTime.AsTime()}
	})
	return now, files, err
}

// poll lists the directory again and returns what has changed, by name.
func (w *watch) poll(ctx context.Context, s *sandbox) ([]*filesystem.FilesystemEvent, error) {
	now, files, err := w.list(ctx, s)
	if err != nil {
		return nil, err
	}
	events := compare(w.files, now)
	if err := w.remember(now); err != nil {
		return nil, err
	}
	for _, event := range events {
		if f := files[event.Name]; w.withEntry && f != nil {
			event.Entry = entryOf(f, filepath.Join(w.path, event.Name))
		}
	}
	return events, nil
}

// compare returns what happened between two lists, by name. A file that was renamed was removed
// and created.
func compare(before, now map[string]seen) (events []*filesystem.FilesystemEvent) {
	add := func(name string, kind filesystem.EventType) {
		events = append(events, &filesystem.FilesystemEvent{Name: name, Type: kind})
	}
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if _, ok := now[name]; !ok {
			add(name, filesystem.EventType_EVENT_TYPE_REMOVE)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(now)) {
		is := now[name]
		was, ok := before[name]
		isFile := is.kind == rotav1.FileType_FILE_TYPE_REGULAR
		switch {
		case !ok || was.kind != is.kind:
			add(name, filesystem.EventType_EVENT_TYPE_CREATE)
			if isFile && is.size > 0 {
				add(name, filesystem.EventType_EVENT_TYPE_WRITE)
			}
		case isFile && (was.size != is.size || !was.changed.Equal(is.changed) && was.mode == is.mode):
			add(name, filesystem.EventType_EVENT_TYPE_WRITE)
		}
		if ok && was.mode != is.mode {
			add(name, filesystem.EventType_EVENT_TYPE_CHMOD)
		}
	}
	return events
}

// watchers are those that are asked for events, and bounds on all.
type watchers struct {
	// streams and kept have a unit for each stream and each watcher, memory has one for each byte
	// that they remember.
	streams, kept, memory *fair
	mu                    sync.Mutex
	byID                  map[string]*watcher
}

type watcher struct {
	turn    chan struct{} // has one element while somebody asks
	sandbox uint64
	watch   *watch
	asked   time.Time
}

func newWatchers() *watchers {
	return &watchers{streams: newFair(watchersMax), kept: newFair(watchersMax), memory: newFair(seenBytesMax), byID: map[string]*watcher{}}
}

// WatchDir streams what changes in a directory.
func (d directories) WatchDir(ctx context.Context, req *filesystem.WatchDirRequest, stream *connect.ServerStream[filesystem.WatchDirResponse]) error {
	s := sandboxIn(ctx)
	giveBack, ok := d.e.watchers.streams.take(s.namespace, 1)
	if !ok {
		return errWatchers
	}
	defer giveBack()
	w, err := d.e.watchers.newWatch(ctx, s, req.Path, req.Recursive, req.IncludeEntry)
	if err != nil {
		return err
	}
	defer w.forget()
	if err := stream.Send(&filesystem.WatchDirResponse{Event: &filesystem.WatchDirResponse_Start{Start: &filesystem.WatchDirResponse_StartEvent{}}}); err != nil {
		return err
	}
	poll, keepalive := time.NewTimer(watchEvery), time.NewTicker(keepaliveOf(ctx))
	defer poll.Stop()
	defer keepalive.Stop()
	for {
		select {
		case <-keepalive.C:
			alive := &filesystem.WatchDirResponse{Event: &filesystem.WatchDirResponse_Keepalive{Keepalive: &filesystem.WatchDirResponse_KeepAlive{}}}
			if err := stream.Send(alive); err != nil {
				return err
			}
			continue
		case <-poll.C:
		case <-ctx.Done():
			return ctx.Err()
		case <-d.e.stopping.Done():
			return connect.NewError(connect.CodeUnavailable, errors.New("the server is stopping: watch the directory again at another one"))
		}
		began := time.Now()
		events, err := w.poll(ctx, s)
		if err != nil {
			return err
		}
		poll.Reset(max(watchEvery, watchPauses*time.Since(began))) // a large directory is listed less often
		for _, event := range events {
			if err := stream.Send(&filesystem.WatchDirResponse{Event: &filesystem.WatchDirResponse_Filesystem{Filesystem: event}}); err != nil {
				return err
			}
		}
	}
}

var errWatchers = connect.NewError(connect.CodeResourceExhausted, errors.New("the server watches as many directories and files for this namespace as it can: stop other watches, or watch fewer files"))

// CreateWatcher remembers a directory as it is now. Only this server knows it.
func (d directories) CreateWatcher(ctx context.Context, req *filesystem.CreateWatcherRequest) (*filesystem.CreateWatcherResponse, error) {
	s := sandboxIn(ctx)
	all := d.e.watchers
	all.forgetIdle(time.Now())
	if !all.kept.change(s.namespace, 0, 1) {
		return nil, errWatchers
	}
	w, err := all.newWatch(ctx, s, req.Path, req.Recursive, req.IncludeEntry)
	if err != nil {
		all.kept.change(s.namespace, 1, 0)
		return nil, err
	}
	all.mu.Lock()
	defer all.mu.Unlock()
	id := rand.Text()
	all.byID[id] = &watcher{turn: make(chan struct{}, 1), sandbox: s.id, watch: w, asked: time.Now()}
	return &filesystem.CreateWatcherResponse{WatcherId: id}, nil
}

// forgetIdle forgets the watchers that were not asked for long.
func (all *watchers) forgetIdle(now time.Time) {
	all.mu.Lock()
	defer all.mu.Unlock()
	for id, w := range all.byID {
		if now.Sub(w.asked) > watcherIdle {
			all.remove(id)
		}
	}
}

// remove forgets a watcher, if there is one. Its caller holds the lock.
func (all *watchers) remove(id string) {
	if w := all.byID[id]; w != nil {
		delete(all.byID, id)
		all.kept.change(w.watch.namespace, 1, 0)
		w.watch.forget()
	}
}

// find returns a watcher of a sandbox, which is then not forgotten for a while.
func (all *watchers) find(s *sandbox, id string) (*watcher, error) {
	all.mu.Lock()
	defer all.mu.Unlock()
	w := all.byID[id]
	if w == nil || w.sandbox != s.id {
		return nil, connect.NewError(connect.CodeNotFound, fmt.Errorf("there is no watcher %.40q here: it was removed or not asked for %s, or another server has it", id, watcherIdle))
	}
	w.asked = time.Now()
	return w, nil
}

// GetWatcherEvents returns what has changed since it was asked last.
func (d directories) GetWatcherEvents(ctx context.Context, req *filesystem.GetWatcherEventsRequest) (*filesystem.GetWatcherEventsResponse, error) {
	s := sandboxIn(ctx)
	w, err := d.e.watchers.find(s, req.WatcherId)
	if err != nil {
		return nil, err
	}
	select {
	case w.turn <- struct{}{}:
		defer func() { <-w.turn }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	events, err := w.watch.poll(ctx, s)
	return &filesystem.GetWatcherEventsResponse{Events: events}, err
}

// RemoveWatcher forgets a watcher.
func (d directories) RemoveWatcher(ctx context.Context, req *filesystem.RemoveWatcherRequest) (*filesystem.RemoveWatcherResponse, error) {
	all := d.e.watchers
	if _, err := all.find(sandboxIn(ctx), req.WatcherId); err != nil {
		return nil, err
	}
	all.mu.Lock()
	defer all.mu.Unlock()
	all.remove(req.WatcherId)
	return &filesystem.RemoveWatcherResponse{}, nil
}
