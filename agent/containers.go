package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	rotav1 "rota/api/gen/rota/v1"

	"rota/agent/runtime"
	"rota/agent/runtime/container"
	"rota/agent/runtime/container/registry"
)

const (
	// sandboxMax is how long it may take until a sandbox is open, an import of its image included.
	sandboxMax = 10 * time.Minute
	// pullingSandboxMax is the same on a node that pulls images: a pull, and as long as an import for the rest.
	pullingSandboxMax = container.PullMax + sandboxMax
	// sweepSandboxesAgain is when the removal of sandboxes is tried again that failed.
	sweepSandboxesAgain = 30 * time.Second
	// connectMax is how long containerd may take to answer a starting agent.
	connectMax = 10 * time.Second
	// sandboxCgroup is below the parent of the supervisor's cgroups.
	sandboxCgroup = "sandboxes"
)

// Containers configures the sandboxes of a node.
type Containers struct {
	// Address of containerd, a Unix socket. runtime.Auto takes container.DefaultAddress if
	// containerd listens there; empty: the node runs no containers.
	Address string
	// Images is a folder of OCI archives; empty: none.
	Images string
	// Init is the program rota-init; that beside this program if empty.
	Init string
	// Pull is from where images are pulled; without hosts, from nowhere.
	Pull registry.Options
	// ImagesBytesMax is what images may take on disk before those are removed that nothing uses; 0: all stay.
	ImagesBytesMax uint64
}

// init is where the first process of sandboxes is.
func (c Containers) init() (string, error) {
	path := c.Init
	if path == "" {
		self, err := os.Executable()
		if err != nil {
			return "", err
		}
		path = filepath.Join(filepath.Dir(self), "rota-init")
	}
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("rota-init, the first process of containers, is missing: %w", err)
	}
	return filepath.Abs(path)
}

// openContainers makes the node one that runs containers, if it can. What was asked for and
// cannot be had is an error.
func (a *agent) openContainers(ctx context.Context, conn runtime.Runtime) (closeAll func(), err error) {
	closeAll = func() {}
	c := a.cfg.Containers
	a.specs.noContainers = "start its agent with --containerd auto, or with a socket of containerd"
	if c.Address == "" || c.Address == runtime.Auto && (os.Geteuid() != 0 || a.specs.refuse != "" || !exists(container.DefaultAddress)) {
		return closeAll, nil
	}
	fail := func(err error) (func(), error) {
		if c.Address == runtime.Auto {
			a.log.Warn("this node runs no containers", "error", err)
			a.specs.noContainers = err.Error()
			return closeAll, nil
		}
		return closeAll, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	if mode := conn.Describe().Mode; mode == runtime.ModeAffinity || mode == "" {
		return fail(errors.New("commands in containers need cgroups, and the supervisor can make none"))
	}
	program, err := c.init()
	if err != nil {
		return fail(err)
	}
	address := c.Address
	if address == runtime.Auto {
		address = container.DefaultAddress
	}
	try, cancel := context.WithTimeout(ctx, connectMax)
	defer cancel()
	containerd, err := container.Connect(try, address)
	if err != nil {
		return fail(err)
	}
	closeAll = func() { _ = containerd.Close() }
	parent := cmp.Or(a.cfg.Process.CgroupParent, runtime.DefaultCgroupParent)
	if c.ImagesBytesMax > 0 {
		a.images = container.NewCollector(containerd, container.CollectorOptions{
			BytesMax: c.ImagesBytesMax, Removed: a.metrics.imageRemoved, Logger: a.log.Named("images"),
		})
	}
	puller, err := a.newPuller(containerd)
	if err != nil {
		return closeAll, err
	}
	a.sandboxes, err = container.NewManager(container.Options{
		Containerd: containerd, Puller: puller, Collector: a.images, Dir: filepath.Join(a.cfg.Process.Dir, runtime.SandboxesName), Init: program,
		Images: c.Images, Cgroup: filepath.Join(parent, sandboxCgroup), Logger: a.log.Named("sandboxes"),
	})
	if err != nil {
		return closeAll, err
	}
	a.specs.noContainers = ""
	a.ahead = newAheadOpener(a.log.Named("sandboxes"), a.homes, a.openSandboxAhead)
	return closeAll, nil
}

// openMax is how long it may take until a sandbox is open.
func (c Containers) openMax() time.Duration {
	if len(c.Pull.Hosts) > 0 {
		return pullingSandboxMax
	}
	return sandboxMax
}

// check refuses settings of images that cannot be used, also on a node that turns out to run no containers.
func (c Containers) check() error {
	if c.ImagesBytesMax > 0 && c.Address == "" {
		return fmt.Errorf("%w: --images-max needs containers: give --containerd as well", ErrConfig)
	}
	if len(c.Pull.Hosts) == 0 {
		if c.Pull.Auth != "" || c.Pull.CA != "" {
			return fmt.Errorf("%w: --registry-auth and --registry-ca are of no use without --pull, which names the registries", ErrConfig)
		}
		return nil
	}
	if c.Address == "" {
		return fmt.Errorf("%w: --pull needs containers: give --containerd as well", ErrConfig)
	}
	if _, err := registry.New(c.Pull); err != nil {
		return fmt.Errorf("%w: %w", ErrConfig, err)
	}
	return nil
}

// newPuller returns nil if no registry is allowed.
func (a *agent) newPuller(c *container.Containerd) (*container.Puller, error) {
	if len(a.cfg.Containers.Pull.Hosts) == 0 {
		return nil, nil
	}
	p, err := container.NewPuller(c, container.PullOptions{
		Registry: a.cfg.Containers.Pull, Room: a.disk.above, Ended: a.metrics.pulled, Collector: a.images, Logger: a.log.Named("images"),
	})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	return p, nil
}

// openSandbox completes a specification with the sandbox of its trajectory, which it opens if it
// is not open. Its error is a sentence for the owner of the action.
func (s *steps) openSandbox(ctx context.Context, conn runtime.Runtime, spec *runtime.Spec, c *rotav1.Container) error {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Containers.openMax())
	defer cancel()
	s.forks.committed.changes(spec.Trajectory)
	opened, err := s.sandboxSpec(ctx, conn, spec.Trajectory, spec.Key.Incarnation, c)
	if err != nil {
		return notReady(ctx, err)
	}
	sb, err := s.sandboxes.Open(ctx, opened)
	if err != nil {
		return notReady(ctx, err)
	}
	spec.Sandbox = &runtime.Sandbox{SocketDir: sb.SocketDir, Cgroup: sb.Cgroup, User: sb.User, Dir: sb.Dir}
	spec.Env = over(sb.Env, spec.Env)
	return nil
}

// openSandboxAhead opens the sandbox of a trajectory before an action needs it, unless it was open before.
func (a *agent) openSandboxAhead(ctx context.Context, incarnation uint64, d *rotav1.DesiredSandbox) error {
	ctx, cancel := context.WithTimeout(ctx, a.cfg.Containers.openMax())
	defer cancel()
	conn := a.driver.connection()
	if conn == nil {
		return errNoSupervisor
	}
	done, err := a.forks.use(ctx, d.GetTrajectoryId(), d.GetSnapshotId())
	if err != nil {
		return err
	}
	defer done()
	spec, err := a.sandboxSpec(ctx, conn, d.GetTrajectoryId(), incarnation, d.GetContainer())
	if err != nil {
		return err
	}
	return a.sandboxes.OpenAhead(ctx, spec)
}

// sandboxSpec makes the directory of a trajectory, and says what its sandbox is made of.
func (a *agent) sandboxSpec(ctx context.Context, conn runtime.Runtime, trajectory, incarnation uint64, c *rotav1.Container) (container.Spec, error) {
	if _, err := conn.MakeTrajectory(ctx, trajectory); err != nil {
		return container.Spec{}, fmt.Errorf("make the directory of the trajectory: %w", err)
	}
	root, err := a.forks.root(trajectory)
	if err != nil {
		return container.Spec{}, fmt.Errorf("find the root file system of the trajectory: %w", err)
	}
	return container.Spec{
		Trajectory: trajectory, Incarnation: incarnation, Image: c.GetImage(), User: c.GetUser(),
		ReadOnlyRoot: c.GetReadOnlyRoot(), HostNetwork: c.GetNetwork() == rotav1.Network_NETWORK_HOST,
		Home: runtime.TrajectoryDir(a.cfg.Process.Dir, trajectory), Root: root,
	}, nil
}

// over is the environment of an image with that of a command over it.
func over(image, command []string) []string {
	env := map[string]string{"PATH": defaultPath}
	for _, kv := range slices.Concat(image, command) {
		if name, value, ok := strings.Cut(kv, "="); ok && name != "" {
			env[name] = value
		}
	}
	return environ(env)
}

// keepImages removes images that nothing uses, when all take more than they may, until the context ends.
func (a *agent) keepImages(ctx context.Context) error {
	if a.images == nil {
		<-ctx.Done()
		return ctx.Err()
	}
	return a.images.Run(ctx)
}

// keepSandboxes removes those of trajectories that have ended, when homes says that there may be some, until
// the context ends.
func (a *agent) keepSandboxes(ctx context.Context) error {
	if a.sandboxes == nil {
		<-ctx.Done()
		return ctx.Err()
	}
	var again <-chan time.Time
	for said := ""; ; {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-a.homes.ended:
		case <-again:
		}
		again = nil
		err := a.sandboxes.Keep(ctx, a.homes.list)
		if err != nil {
			again = time.After(sweepSandboxesAgain)
		}
		if err != nil && ctx.Err() == nil && err.Error() != said {
			said = err.Error()
			a.log.Warn("sandboxes of ended trajectories are not removed; trying on", "error", err)
		}
	}
}
