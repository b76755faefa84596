package container

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	durable "rota/agent/internal/record"
	"rota/agent/runtime/container/initcall"
	"rota/api/backoff"
)

const (
	recordName = "sandbox.json"
	socketName = "socket"
	hostsName  = "hosts"
	hosts      = "127.0.0.1 localhost\n::1 localhost ip6-localhost\n"
	// listenMax is how long rota-init may take until it listens.
	listenMax = 30 * time.Second
	// openingMax is how many sandboxes are opened at once.
	openingMax = 8
	// removingMax is how many are removed at once.
	removingMax = 16
	// openTriesMax is how often a sandbox is opened that something else is in the way of, and openAgain the
	// time between.
	openTriesMax = 3
	openAgain    = 500 * time.Millisecond
)

// Options is what a Manager is told.
type Options struct {
	Containerd *Containerd
	// Dir has a folder for each sandbox.
	Dir string
	// Init is the program rota-init.
	Init string
	// Images is a folder of OCI archives, each of which is an image by its name; empty: none.
	Images string
	// Puller gets images from registries that are not on the node; nil: they are not pulled.
	Puller *Puller
	// Collector hears of images that came and of sandboxes that ended; nil: images stay.
	Collector *Collector
	// Cgroup is the parent of the cgroups of sandboxes, below each mount.
	Cgroup string
	Logger hclog.Logger
}

// Spec is a sandbox that should be open.
type Spec struct {
	Trajectory uint64
	// Incarnation of the node: the trajectories of an earlier one are lost.
	Incarnation  uint64
	Image        string
	User         string // of commands; empty: that of the image
	ReadOnlyRoot bool
	HostNetwork  bool
	// Home is the directory of the trajectory on the node.
	Home string
	// Root is what Commit has returned; empty: the root file system of the image.
	Root string
}

// Sandbox is an open sandbox.
type Sandbox struct {
	// SocketDir is where its rota-init listens, Cgroup where it is, below each mount.
	SocketDir, Cgroup string
	User              string
	// Dir is the working directory that the image says; empty: the workspace.
	Dir string
	Env []string // of the image
}

// record is what is on disk of an open sandbox.
type record struct {
	Spec    Spec
	Sandbox Sandbox
	// Parent is the root file system that its own is above, if it was committed; see Commit.
	Parent string
}

// Manager opens and removes the sandboxes of an agent. An operator starts one for each folder.
type Manager struct {
	opts  Options
	owner string
	// opening bounds how many are opened at once; importing, those that unpack an image.
	opening   chan struct{}
	importing chan struct{}
	layersMax int // of a root file system

	mu        sync.Mutex
	sandboxes map[uint64]*entry
}

// entry is a sandbox that is open, or is being opened or removed under its lock.
type entry struct {
	locked chan struct{} // has a value while the lock is held
	open   *record       // nil: not known to be open
	gone   bool          // it is not that of the trajectory any more
}

func (e *entry) unlock() { <-e.locked }

// NewManager makes the folder of sandboxes.
func NewManager(o Options) (*Manager, error) {
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the folder of sandboxes: %w", err)
	}
	h := fnv.New64a()
	h.Write([]byte(o.Dir))
	m := &Manager{opts: o, owner: fmt.Sprintf("%016x", h.Sum64()),
		opening: make(chan struct{}, openingMax), importing: make(chan struct{}, 1), layersMax: rootLayersMax, sandboxes: map[uint64]*entry{}}
	if o.Puller != nil {
		m.importing = o.Puller.unpacking
	}
	return m, nil
}

// id is the name of a trajectory's container, its snapshot and its cgroup.
func (m *Manager) id(trajectory uint64) string {
	return "rota-" + m.owner + "-" + strconv.FormatUint(trajectory, 10)
}

func (m *Manager) dir(trajectory uint64) string {
	return filepath.Join(m.opts.Dir, strconv.FormatUint(trajectory, 10))
}

// lock returns the entry of a trajectory, locked. It waits until the context ends: another action of the
// trajectory may be importing its image, for minutes.
func (m *Manager) lock(ctx context.Context, trajectory uint64) (*entry, error) {
	for {
		m.mu.Lock()
		e := m.sandboxes[trajectory]
		if e == nil {
			e = &entry{locked: make(chan struct{}, 1)}
			m.sandboxes[trajectory] = e
		}
		m.mu.Unlock()
		if _, err := slot(ctx, e.locked); err != nil {
			return nil, fmt.Errorf("wait for the sandbox of trajectory %d: %w", trajectory, err)
		}
		if !e.gone {
			return e, nil
		}
		e.unlock() // it was removed while this waited
	}
}

// drop forgets a locked entry, and unlocks it for who waits for it.
func (m *Manager) drop(trajectory uint64, e *entry) {
	e.gone = true
	m.mu.Lock()
	delete(m.sandboxes, trajectory)
	m.mu.Unlock()
	e.unlock()
}

// Open returns the sandbox of a trajectory, which it opens if it is not open, and starts again
// if its first process has ended. Its error is a sentence for the owner of the trajectory.
func (m *Manager) Open(ctx context.Context, s Spec) (Sandbox, error) {
	e, err := m.find(ctx, s.Trajectory)
	if err != nil {
		return Sandbox{}, err
	}
	defer e.unlock()
	same := e.open != nil && e.open.Spec == s
	if same && !initcall.Gone(e.open.Sandbox.SocketDir) {
		return e.open.Sandbox, nil
	}
	if same {
		m.opts.Logger.Warn("a sandbox has ended; it is started again with its files", "trajectory", s.Trajectory)
		err = m.again(ctx, e.open)
	} else {
		e.open, err = m.make(ctx, s, false)
	}
	if err != nil {
		e.open = nil
		return Sandbox{}, openFailed(s, err)
	}
	return e.open.Sandbox, nil
}

// OpenAhead opens the sandbox of a trajectory before an action needs it. One that was opened before is left
// to the next action, also if its first process has ended. An Open that comes meanwhile waits for it.
func (m *Manager) OpenAhead(ctx context.Context, s Spec) error {
	e, err := m.find(ctx, s.Trajectory)
	if err != nil {
		return err
	}
	defer e.unlock()
	if e.open != nil && e.open.Spec.Incarnation == s.Incarnation {
		return nil
	}
	if e.open, err = m.make(ctx, s, true); err != nil {
		return openFailed(s, err)
	}
	return nil
}

// find returns the entry of a trajectory, locked, with what an earlier agent has opened.
func (m *Manager) find(ctx context.Context, trajectory uint64) (*entry, error) {
	e, err := m.lock(ctx, trajectory)
	if err != nil || e.open != nil {
		return e, err
	}
	if e.open, err = m.opened(trajectory); err != nil {
		e.unlock()
		return nil, fmt.Errorf("find the sandbox of trajectory %d: %w", trajectory, err)
	}
	return e, nil
}

func openFailed(s Spec, err error) error {
	return fmt.Errorf("open the sandbox of trajectory %d with image %s: %w", s.Trajectory, s.Image, err)
}

// slot waits until there is room for one more.
func slot(ctx context.Context, slots chan struct{}) (leave func(), err error) {
	select {
	case slots <- struct{}{}:
		return func() { <-slots }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// again starts a sandbox that has ended.
func (m *Manager) again(ctx context.Context, r *record) error {
	leave, err := slot(ctx, m.opening)
	if err != nil {
		return err
	}
	defer leave()
	if err := m.opts.Containerd.stop(ctx, m.id(r.Spec.Trajectory)); err != nil {
		return err
	}
	if err := m.opts.Containerd.goOn(ctx, m.id(r.Spec.Trajectory), r.Parent); err != nil {
		return err
	}
	return m.run(ctx, r)
}

// errDamaged says that a record of a sandbox has no sense.
var errDamaged = errors.New("the record of the sandbox is damaged")

// load reads what an earlier agent has opened; nil: nothing. The error is errDamaged if that cannot be told.
func (m *Manager) load(trajectory uint64) (*record, error) {
	b, err := os.ReadFile(filepath.Join(m.dir(trajectory), recordName))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	r := new(record)
	if err := json.Unmarshal(b, r); err != nil {
		return nil, fmt.Errorf("%w: trajectory %d: %w", errDamaged, trajectory, err)
	}
	return r, nil
}

// opened is load for who can do without: a sandbox with a damaged record is as good as none.
func (m *Manager) opened(trajectory uint64) (*record, error) {
	r, err := m.load(trajectory)
	if errors.Is(err, errDamaged) {
		m.opts.Logger.Warn("a sandbox is made anew", "error", err)
		return nil, nil
	}
	return r, err
}

// Reserve makes the folder of a sandbox that is opened later. It tells the supervisor that the directory of
// the trajectory belongs to a user of the sandbox.
func (m *Manager) Reserve(trajectory uint64) error { return os.MkdirAll(m.dir(trajectory), 0o700) }

// make opens a sandbox anew. Its folder stays also if that fails, see Reserve: without it, a supervisor
// that starts would remove the directory of the trajectory.
func (m *Manager) make(ctx context.Context, s Spec, ahead bool) (*record, error) {
	_, noDir := os.Stat(m.dir(s.Trajectory))
	if err := errors.Join(m.Reserve(s.Trajectory), m.clear(ctx, s.Trajectory)); err != nil {
		return nil, fmt.Errorf("remove what is left of an earlier one: %w", err)
	}
	defer m.opts.Containerd.holds.hold(s.Image)()
	for tries := 1; ; tries++ {
		image, err := m.image(ctx, s.Image, ahead)
		if err != nil {
			return nil, err
		}
		if err := m.opts.Containerd.noteUse(ctx, image); err != nil {
			m.opts.Logger.Warn("the last use of an image is not written down", "error", err)
		}
		r, err := m.makeOf(ctx, s, image)
		// The hold keeps this agent from removing the image, but not another one, nor an operator. And an
		// opening that was cut short with its agent may still be undone by containerd, which then takes away
		// what this one makes by the same name.
		again := errors.Is(err, errImageGone) && s.Root == "" || errors.Is(err, errFirstProcess) && noDir == nil
		if !again || tries == openTriesMax || backoff.Sleep(ctx, openAgain) != nil {
			return r, err
		}
	}
}

// makeOf opens a sandbox anew with an image that was found.
func (m *Manager) makeOf(ctx context.Context, s Spec, image *manifest) (*record, error) {
	leave, err := slot(ctx, m.opening) // not before: an import takes minutes
	if err != nil {
		return nil, err
	}
	defer leave()
	id, dir := m.id(s.Trajectory), m.dir(s.Trajectory)
	r := &record{Spec: s, Sandbox: Sandbox{
		SocketDir: filepath.Join(dir, socketName), Cgroup: filepath.Join("/", m.opts.Cgroup, id),
		User: s.User, Env: image.image.Config.Env,
	}}
	if r.Sandbox.User == "" {
		r.Sandbox.User = image.image.Config.User
	}
	if wd := image.image.Config.WorkingDir; filepath.IsAbs(wd) && filepath.Clean(wd) != "/" {
		r.Sandbox.Dir = filepath.Clean(wd)
	}
	p := paths{init: m.opts.Init, socket: r.Sandbox.SocketDir, cores: initcall.CoresDir(r.Sandbox.SocketDir), home: s.Home, hosts: filepath.Join(dir, hostsName)}
	if err := errors.Join(os.MkdirAll(p.socket, 0o700), os.MkdirAll(p.cores, 0o755), os.WriteFile(p.hosts, []byte(hosts), 0o644)); err != nil {
		return nil, err
	}
	err = m.opts.Containerd.create(ctx, id, m.owner, s.Image, cmp.Or(s.Root, image.chain()), spec(&s, m.owner, r.Sandbox.Cgroup, p))
	if err == nil {
		err = m.run(ctx, r)
	}
	if err == nil {
		err = save(filepath.Join(dir, recordName), r)
	}
	if err != nil {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*killFor)
		defer cancel()
		return nil, errors.Join(err, m.clear(end, s.Trajectory))
	}
	return r, nil
}

// save writes a record durably, as a whole or not at all: containerd syncs its own, and what they say must fit.
func save(path string, r *record) error { return durable.ReplaceJSON(path, r) }

// run starts the first process and waits until it listens.
func (m *Manager) run(ctx context.Context, r *record) error {
	if err := m.opts.Containerd.start(ctx, m.id(r.Spec.Trajectory)); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, listenMax)
	defer cancel()
	for pause := time.Millisecond; !initcall.Listening(r.Sandbox.SocketDir); pause = min(2*pause, 50*time.Millisecond) {
		select {
		case <-ctx.Done():
			return errors.New("its first process does not listen")
		case <-time.After(pause):
		}
	}
	return nil
}

// image finds an image in containerd, in the folder of archives or in a registry. One that is unpacked
// does not wait for others that are being imported or pulled.
func (m *Manager) image(ctx context.Context, name string, ahead bool) (*manifest, error) {
	if unpacked, err := m.opts.Containerd.findUnpacked(ctx, name); err != nil || unpacked != nil {
		return unpacked, err
	}
	defer m.opts.Collector.grown()
	image, err := m.imported(ctx, name)
	if !errors.Is(err, ErrNoImage) || m.opts.Puller == nil {
		return image, err
	}
	if pullErr := m.opts.Puller.pull(ctx, name, ahead); pullErr != nil {
		return nil, fmt.Errorf("%w, and %w", err, pullErr)
	}
	return m.imported(ctx, name)
}

// Prefetch has an image on the node, as a sandbox of it would, before one opens. Its error wraps ErrNoImage if the node
// cannot get it.
func (m *Manager) Prefetch(ctx context.Context, name string) error {
	defer m.opts.Containerd.holds.hold(name)()
	image, err := m.image(ctx, name, true)
	if err != nil {
		return err
	}
	return m.opts.Containerd.noteUse(ctx, image)
}

// Pulling is how many bytes of layers the pull of an image has downloaded, and how many it has to; 0 if
// none goes on.
func (m *Manager) Pulling(name string) (downloaded, all uint64) {
	if m.opts.Puller == nil {
		return 0, 0
	}
	return m.opts.Puller.progress(name)
}

// imported finds an image that is on the node, and unpacks it.
func (m *Manager) imported(ctx context.Context, name string) (*manifest, error) {
	leave, err := slot(ctx, m.importing)
	if err != nil {
		return nil, err
	}
	defer leave()
	image, err := m.opts.Containerd.findImage(ctx, name)
	if !errors.Is(err, ErrNoImage) {
		return image, err
	}
	if m.opts.Images == "" || !filepath.IsLocal(name) {
		return nil, fmt.Errorf("%w; import it there with rota image import", err)
	}
	root, openErr := os.OpenRoot(m.opts.Images)
	if openErr != nil {
		return nil, openErr
	}
	defer root.Close()
	f, openErr := root.Open(name)
	if openErr != nil {
		return nil, fmt.Errorf("%w, and not in %s; import it there with rota image import", err, m.opts.Images)
	}
	defer f.Close()
	if _, err := m.opts.Containerd.Import(ctx, f, name); err != nil {
		return nil, fmt.Errorf("import %s: %w", f.Name(), err)
	}
	return m.opts.Containerd.findImage(ctx, name)
}

// remove removes all that there is of a sandbox. It is called under the lock of its entry.
func (m *Manager) remove(ctx context.Context, trajectory uint64) error {
	if err := m.clear(ctx, trajectory); err != nil {
		return err
	}
	return os.RemoveAll(m.dir(trajectory))
}

// clear is remove that leaves an empty folder.
func (m *Manager) clear(ctx context.Context, trajectory uint64) error {
	if err := m.opts.Containerd.remove(ctx, m.id(trajectory)); err != nil {
		return err
	}
	r, err := m.opened(trajectory)
	if err != nil {
		return err
	}
	if r != nil {
		if err := takeBack(r.Spec.Home); err != nil {
			return err
		}
	}
	entries, err := os.ReadDir(m.dir(trajectory))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		err = errors.Join(err, os.RemoveAll(filepath.Join(m.dir(trajectory), e.Name())))
	}
	return err
}

// takeBack gives the directory of a trajectory to the agent, now that nothing runs in the sandbox.
// Root in it may have opened the directory to everybody, with programs in it that run as root, or
// given it to the user of another trajectory.
func takeBack(home string) error {
	root, err := os.OpenRoot(home)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer root.Close()
	return errors.Join(root.Chmod(".", 0o700), root.Lchown(".", os.Geteuid(), os.Getegid()))
}

// Keep removes the sandboxes of trajectories that are not open. It asks which are after it has
// found what there is, so that none is missing that was opened meanwhile. Several are removed at once: one
// may be in the middle of an import, or not die for long.
func (m *Manager) Keep(ctx context.Context, list func() []uint64) error {
	known, err := m.known(ctx)
	open := map[uint64]bool{}
	for _, trajectory := range list() {
		open[trajectory] = true
	}
	var removals sync.WaitGroup
	slots, failed := make(chan struct{}, removingMax), make(chan error, len(known))
	for _, trajectory := range known {
		if open[trajectory] {
			continue
		}
		leave, fullErr := slot(ctx, slots)
		if fullErr != nil {
			err = errors.Join(err, fullErr)
			break
		}
		removals.Go(func() {
			defer leave()
			failed <- m.end(ctx, trajectory)
		})
	}
	removals.Wait()
	close(failed)
	for f := range failed {
		err = errors.Join(err, f)
	}
	return err
}

// end removes the sandbox of a trajectory that has ended.
func (m *Manager) end(ctx context.Context, trajectory uint64) error {
	e, err := m.lock(ctx, trajectory)
	if err != nil {
		return err
	}
	err = m.remove(ctx, trajectory)
	m.drop(trajectory, e)
	m.opts.Collector.unused()
	if err != nil {
		return fmt.Errorf("remove the sandbox of trajectory %d: %w", trajectory, err)
	}
	m.opts.Logger.Info("sandbox removed", "trajectory", trajectory)
	return nil
}

// known are the trajectories of which there is something.
func (m *Manager) known(ctx context.Context) ([]uint64, error) {
	ids, err := m.opts.Containerd.list(ctx, m.owner)
	entries, dirErr := os.ReadDir(m.opts.Dir)
	var out []uint64
	add := func(text string) {
		if n, err := strconv.ParseUint(text, 10, 64); err == nil && !slices.Contains(out, n) {
			out = append(out, n)
		}
	}
	for _, e := range entries {
		add(e.Name())
	}
	for _, id := range ids {
		add(strings.TrimPrefix(id, "rota-"+m.owner+"-"))
	}
	return out, errors.Join(err, dirErr)
}
