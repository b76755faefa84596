package e2b

import (
	"context"
	"crypto/rand"
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
	// watchersMax bounds the streams and the watchers of a server.
	watchersMax = 256
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
	files     map[string]seen
}

// newWatch lists a directory for the first time.
func newWatch(ctx context.Context, s *sandbox, dir string, recursive, withEntry bool) (*watch, error) {
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
	w := &watch{path: relative, depth: 1, withEntry: withEntry}
	if recursive {
		w.depth = math.MaxUint32
	}
	w.files, _, err = w.list(ctx, s)
	return w, err
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
	w.files = now
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

// watchers are those that are asked for events, and a bound on all.
type watchers struct {
	// open has an element for each stream.
	open chan struct{}
	mu   sync.Mutex
	byID map[string]*watcher
}

type watcher struct {
	mu      sync.Mutex
	sandbox uint64
	watch   *watch
	asked   time.Time
}

func newWatchers() *watchers {
	return &watchers{open: make(chan struct{}, watchersMax), byID: map[string]*watcher{}}
}

// WatchDir streams what changes in a directory.
func (d directories) WatchDir(ctx context.Context, req *filesystem.WatchDirRequest, stream *connect.ServerStream[filesystem.WatchDirResponse]) error {
	select {
	case d.e.watchers.open <- struct{}{}:
		defer func() { <-d.e.watchers.open }()
	default:
		return errWatchers
	}
	s := sandboxIn(ctx)
	w, err := newWatch(ctx, s, req.Path, req.Recursive, req.IncludeEntry)
	if err != nil {
		return err
	}
	if err := stream.Send(&filesystem.WatchDirResponse{Event: &filesystem.WatchDirResponse_Start{Start: &filesystem.WatchDirResponse_StartEvent{}}}); err != nil {
		return err
	}
	poll, keepalive := time.NewTicker(watchEvery), time.NewTicker(keepaliveOf(ctx))
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
		}
		events, err := w.poll(ctx, s)
		if err != nil {
			return err
		}
		for _, event := range events {
			if err := stream.Send(&filesystem.WatchDirResponse{Event: &filesystem.WatchDirResponse_Filesystem{Filesystem: event}}); err != nil {
				return err
			}
		}
	}
}

var errWatchers = connect.NewError(connect.CodeResourceExhausted, fmt.Errorf("the server watches %d directories, which is its limit: stop others", watchersMax))

// CreateWatcher remembers a directory as it is now. Only this server knows it.
func (d directories) CreateWatcher(ctx context.Context, req *filesystem.CreateWatcherRequest) (*filesystem.CreateWatcherResponse, error) {
	s := sandboxIn(ctx)
	w, err := newWatch(ctx, s, req.Path, req.Recursive, req.IncludeEntry)
	if err != nil {
		return nil, err
	}
	all := d.e.watchers
	all.mu.Lock()
	defer all.mu.Unlock()
	now := time.Now()
	maps.DeleteFunc(all.byID, func(_ string, w *watcher) bool { return now.Sub(w.asked) > watcherIdle })
	if len(all.byID) >= watchersMax {
		return nil, errWatchers
	}
	id := rand.Text()
	all.byID[id] = &watcher{sandbox: s.id, watch: w, asked: now}
	return &filesystem.CreateWatcherResponse{WatcherId: id}, nil
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
	w.mu.Lock()
	defer w.mu.Unlock()
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
	delete(all.byID, req.WatcherId)
	return &filesystem.RemoveWatcherResponse{}, nil
}
