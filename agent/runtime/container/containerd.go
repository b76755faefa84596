package container

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"slices"
	"syscall"
	"time"

	containers "github.com/containerd/containerd/api/services/containers/v1"
	content "github.com/containerd/containerd/api/services/content/v1"
	diff "github.com/containerd/containerd/api/services/diff/v1"
	images "github.com/containerd/containerd/api/services/images/v1"
	introspection "github.com/containerd/containerd/api/services/introspection/v1"
	leases "github.com/containerd/containerd/api/services/leases/v1"
	namespaces "github.com/containerd/containerd/api/services/namespaces/v1"
	snapshots "github.com/containerd/containerd/api/services/snapshots/v1"
	tasks "github.com/containerd/containerd/api/services/tasks/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

const (
	// Namespace is that of containerd in which everything of rota is.
	Namespace = "rota"
	// DefaultAddress is where containerd listens unless it is configured otherwise.
	DefaultAddress = "/run/containerd/containerd.sock"
	// leaseFor is how long something half made is kept from containerd's garbage collector.
	leaseFor = time.Hour
	// snapshotType is the kind of plugin that holds file systems.
	snapshotType = "io.containerd.snapshotter.v1"
	// contentType is the kind of plugin that holds layers as they are downloaded.
	contentType = "io.containerd.content.v1"
	// expireLabel says when containerd's garbage collector takes no notice of a lease any more.
	expireLabel = "containerd.io/gc.expire"
	// leaseKey is where a context has its lease.
	leaseKey = "containerd-lease"
)

// snapshotters are those that are used, the better first: the second one copies.
var snapshotters = []string{"overlayfs", "native"}

// ErrUnavailable says that there is no containerd that this package can use.
var ErrUnavailable = errors.New("no containers")

// Containerd is a connection to the containerd of the machine.
type Containerd struct {
	conn        *grpc.ClientConn
	snapshotter string
	// contentDir and snapshotsDir are where containerd keeps layers, packed and unpacked; empty: it does not say.
	contentDir, snapshotsDir string
	holds                    imageHolds

	containers containers.ContainersClient
	content    content.ContentClient
	diff       diff.DiffClient
	images     images.ImagesClient
	leases     leases.LeasesClient
	namespaces namespaces.NamespacesClient
	snapshots  snapshots.SnapshotsClient
	tasks      tasks.TasksClient
}

// Connect connects to the containerd that listens on a Unix socket. Its error wraps
// ErrUnavailable.
func Connect(ctx context.Context, address string) (*Containerd, error) {
	if err := reach(ctx, address); err != nil {
		return nil, fmt.Errorf("%w: containerd at %s: %w", ErrUnavailable, address, err)
	}
	conn, err := grpc.NewClient("unix://"+address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, fmt.Errorf("%w: containerd at %s: %w", ErrUnavailable, address, err)
	}
	c := &Containerd{
		conn: conn, containers: containers.NewContainersClient(conn), content: content.NewContentClient(conn),
		diff: diff.NewDiffClient(conn), images: images.NewImagesClient(conn), leases: leases.NewLeasesClient(conn),
		namespaces: namespaces.NewNamespacesClient(conn), snapshots: snapshots.NewSnapshotsClient(conn), tasks: tasks.NewTasksClient(conn),
	}
	if err := c.open(ctx); err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("%w: containerd at %s: %w", ErrUnavailable, address, err)
	}
	return c, nil
}

// reach says in plain words why a socket cannot be used.
func reach(ctx context.Context, address string) error {
	conn, err := new(net.Dialer).DialContext(ctx, "unix", address)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return errors.New("nothing listens there: start containerd, or name its socket with --containerd")
	case errors.Is(err, fs.ErrPermission):
		return errors.New("this user may not use it: only root may")
	case err != nil:
		return err
	}
	return conn.Close()
}

// open finds the snapshotter and makes the namespace.
func (c *Containerd) open(ctx context.Context) error {
	plugins, err := introspection.NewIntrospectionClient(c.conn).Plugins(ctx, &introspection.PluginsRequest{})
	if err != nil {
		return err
	}
	works := map[string]bool{}
	for _, p := range plugins.GetPlugins() {
		works[p.GetID()] = works[p.GetID()] || p.GetType() == snapshotType && p.GetInitErr() == nil
	}
	i := slices.IndexFunc(snapshotters, func(name string) bool { return works[name] })
	if i < 0 {
		return fmt.Errorf("it has none of the snapshotters %v", snapshotters)
	}
	c.snapshotter = snapshotters[i]
	for _, p := range plugins.GetPlugins() {
		switch {
		case p.GetType() == contentType:
			c.contentDir = p.GetExports()["root"]
		case p.GetType() == snapshotType && p.GetID() == c.snapshotter:
			c.snapshotsDir = p.GetExports()["root"]
		}
	}
	_, err = c.namespaces.Create(in(ctx, Namespace), &namespaces.CreateNamespaceRequest{Namespace: &namespaces.Namespace{Name: Namespace}})
	return exceptCode(err, codes.AlreadyExists)
}

// Close ends the connection. Sandboxes go on.
func (c *Containerd) Close() error { return c.conn.Close() }

// in is a context for calls that concern a namespace.
func in(ctx context.Context, namespace string) context.Context {
	return metadata.AppendToOutgoingContext(ctx, "containerd-namespace", namespace)
}

// leased is a context whose calls make what the garbage collector leaves alone until done.
func (c *Containerd) leased(ctx context.Context) (_ context.Context, done func(), err error) {
	ctx = in(ctx, Namespace)
	expires := time.Now().Add(leaseFor).UTC().Format(time.RFC3339)
	lease, err := c.leases.Create(ctx, &leases.CreateRequest{Labels: map[string]string{expireLabel: expires}})
	if err != nil {
		return nil, nil, fmt.Errorf("make a lease of containerd: %w", err)
	}
	id := lease.GetLease().GetID()
	done = func() {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		_, _ = c.leases.Delete(end, &leases.DeleteRequest{ID: id}) // it expires
	}
	return metadata.AppendToOutgoingContext(ctx, leaseKey, id), done, nil
}

// leaseOf is the lease of a context; empty: it has none.
func leaseOf(ctx context.Context) string {
	md, _ := metadata.FromOutgoingContext(ctx)
	for _, id := range md.Get(leaseKey) {
		return id
	}
	return ""
}

// keepSnapshot has the lease of a context keep a snapshot, if there is one of the name by now. What is
// found after that stays until the lease ends.
func (c *Containerd) keepSnapshot(ctx context.Context, name string) error {
	_, err := c.leases.AddResource(ctx, &leases.AddResourceRequest{
		ID: leaseOf(ctx), Resource: &leases.Resource{ID: name, Type: "snapshots/" + c.snapshotter},
	})
	if err != nil {
		return fmt.Errorf("keep layer %s: %w", name, err)
	}
	return nil
}

// exceptCode drops an error that means no harm.
func exceptCode(err error, but codes.Code) error {
	if status.Code(err) == but {
		return nil
	}
	return err
}

func isCode(err error, code codes.Code) bool { return status.Code(err) == code }
