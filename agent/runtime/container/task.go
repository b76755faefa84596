package container

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"syscall"
	"time"

	containers "github.com/containerd/containerd/api/services/containers/v1"
	snapshots "github.com/containerd/containerd/api/services/snapshots/v1"
	tasks "github.com/containerd/containerd/api/services/tasks/v1"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/anypb"
)

const (
	runtimeName = "io.containerd.runc.v2"
	specType    = "types.containerd.io/opencontainers/runtime-spec/1/Spec"
	// ownerLabel says which agent a container is of.
	ownerLabel = "rota/owner"
	// killFor is how long the processes of a container may take to end.
	killFor = 10 * time.Second
)

// errFirstProcess says that containerd does not make the first process of a container.
var errFirstProcess = errors.New("make its first process")

// errImageGone says that the layers of an image are not there any more.
var errImageGone = errors.New("the image was removed meanwhile")

// create makes a container and its file system, and starts nothing. Its error wraps errImageGone if what
// the file system is to be above is not there.
func (c *Containerd) create(ctx context.Context, id, owner, image, chain string, spec *specs.Spec) error {
	ctx, done, err := c.leased(ctx)
	if err != nil {
		return err
	}
	defer done()
	value, err := json.Marshal(spec)
	if err != nil {
		return err
	}
	_, err = c.snapshots.Prepare(ctx, &snapshots.PrepareSnapshotRequest{Snapshotter: c.snapshotter, Key: id, Parent: chain})
	if isCode(err, codes.NotFound) {
		return fmt.Errorf("%w: make its file system: %w", errImageGone, err)
	}
	if err != nil {
		return fmt.Errorf("make its file system: %w", err)
	}
	_, err = c.containers.Create(ctx, &containers.CreateContainerRequest{Container: &containers.Container{
		ID: id, Labels: map[string]string{ownerLabel: owner}, Image: image, Snapshotter: c.snapshotter, SnapshotKey: id,
		Runtime: &containers.Container_Runtime{Name: runtimeName}, Spec: &anypb.Any{TypeUrl: specType, Value: value},
	}})
	if err != nil {
		return fmt.Errorf("make the container: %w", err)
	}
	return nil
}

// start starts the first process of a container.
func (c *Containerd) start(ctx context.Context, id string) error {
	ctx = in(ctx, Namespace)
	resp, err := c.snapshots.Mounts(ctx, &snapshots.MountsRequest{Snapshotter: c.snapshotter, Key: id})
	if err != nil {
		return fmt.Errorf("find its file system: %w", err)
	}
	for _, m := range resp.GetMounts() {
		// An image may contain device files, and v2 cgroups of attempts do not keep from using them.
		m.Options = append(m.Options, "nodev")
	}
	if _, err := c.tasks.Create(ctx, &tasks.CreateTaskRequest{ContainerID: id, Rootfs: resp.GetMounts()}); err != nil {
		return fmt.Errorf("%w: %w", errFirstProcess, err)
	}
	if _, err := c.tasks.Start(ctx, &tasks.StartRequest{ContainerID: id}); err != nil {
		return fmt.Errorf("start its first process: %w", err)
	}
	return nil
}

// stop ends all processes of a container; its files stay. One that does not run is stopped.
// containerd takes a moment to notice that the shim of a container has died, so that what fails is
// tried again.
func (c *Containerd) stop(ctx context.Context, id string) error {
	ctx = in(ctx, Namespace)
	tries, cancel := context.WithTimeout(ctx, killFor)
	defer cancel()
	for {
		err := c.tryStop(ctx, id)
		if err == nil || isCode(err, codes.Unavailable) {
			return err
		}
		select {
		case <-tries.Done():
			return err
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (c *Containerd) tryStop(ctx context.Context, id string) error {
	_, err := c.tasks.Kill(ctx, &tasks.KillRequest{ContainerID: id, Signal: uint32(syscall.SIGKILL), All: true})
	if err == nil {
		wait, cancel := context.WithTimeout(ctx, killFor)
		_, err = c.tasks.Wait(wait, &tasks.WaitRequest{ContainerID: id})
		cancel()
	}
	if err != nil && !isCode(err, codes.NotFound) && !isCode(err, codes.FailedPrecondition) {
		return fmt.Errorf("end its processes: %w", err)
	}
	_, err = c.tasks.Delete(ctx, &tasks.DeleteTaskRequest{ContainerID: id})
	if err := exceptCode(err, codes.NotFound); err != nil {
		return fmt.Errorf("remove its processes: %w", err)
	}
	return nil
}

// remove ends a container and removes it with its files.
func (c *Containerd) remove(ctx context.Context, id string) error {
	if err := c.stop(ctx, id); err != nil {
		return err
	}
	ctx = in(ctx, Namespace)
	_, err := c.containers.Delete(ctx, &containers.DeleteContainerRequest{ID: id})
	return errors.Join(exceptCode(err, codes.NotFound), c.removeSnapshot(ctx, id))
}

// list returns the containers of an agent.
func (c *Containerd) list(ctx context.Context, owner string) ([]string, error) {
	return c.listWhere(ctx, fmt.Sprintf("labels.%q==%s", ownerLabel, owner))
}

// listWhere returns the containers that any of the filters fits; all, without one.
func (c *Containerd) listWhere(ctx context.Context, filters ...string) ([]string, error) {
	resp, err := c.containers.List(in(ctx, Namespace), &containers.ListContainersRequest{Filters: filters})
	if err != nil {
		return nil, fmt.Errorf("list containers: %w", err)
	}
	var ids []string
	for _, i := range resp.GetContainers() {
		ids = append(ids, i.GetID())
	}
	return ids, nil
}

// Sandboxes returns the containers of all agents, by their names.
func (c *Containerd) Sandboxes(ctx context.Context) ([]string, error) { return c.listWhere(ctx) }
