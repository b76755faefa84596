package layers

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"rota/agent/internal/record"
)

// Take makes a snapshot of a directory, in which nothing may run or be written meanwhile. The
// directory goes on as it was. Root is the name of the root file system of its container.
func (s *Store) Take(ctx context.Context, id uint64, root string, trajectory uint64, path string) error {
	if has, err := s.Has(id); has || err != nil {
		return err
	}
	h, err := s.home(trajectory)
	if err != nil {
		return err
	}
	p := s.newPins() // the trajectory may end before the record of the snapshot is written
	defer p.release()
	var layers []Layer
	mounts, _ := s.mounts()
	switch {
	case !mounts, h != nil && h.Upper != "" && len(h.Lower) >= depthMax:
		layers, err = s.copyOf(ctx, p, path)
	case h != nil && h.Upper != "":
		layers, err = s.push(p, trajectory, path, h)
	default:
		layers, err = s.setAside(p, trajectory, path, h)
	}
	if err != nil {
		return fmt.Errorf("take a snapshot: %w", err)
	}
	err = s.write(s.record(snapshotsName, id), snapshot{Layers: layers, Root: root, Boot: s.boot})
	s.settleLater(id) // its record may be there in spite of an error
	return err
}

// setAside makes a plain directory a layer, with an overlay in its place. Before is the record of a
// directory whose files were copied from a snapshot; nil: it has none.
func (s *Store) setAside(p *pins, trajectory uint64, path string, before *home) ([]Layer, error) {
	own, err := ownerOf(path)
	if err != nil {
		return nil, err
	}
	name, err := p.newLayer()
	if err != nil {
		return nil, err
	}
	upper, err := s.newUpper(p, own)
	if err != nil {
		return nil, err
	}
	h := home{Path: path, Lower: []Layer{{name, own}}, Upper: upper, Plain: true, Before: before, Owner: &own}
	if before != nil {
		h.Root = before.Root
	}
	if err := s.write(s.record(homesName, trajectory), h); err != nil {
		return nil, errors.Join(err, s.restore(trajectory, before)) // it may be there in spite of the error
	}
	if err := os.Rename(path, s.files(name)); err != nil {
		return nil, errors.Join(err, s.restore(trajectory, before))
	}
	if err := errors.Join(makeOwned(path, own), s.mount(&h)); err != nil {
		return nil, errors.Join(err, s.moveBack(trajectory, &h))
	}
	if err := s.setMoved(trajectory, &h); err != nil {
		if now, readErr := read[home](s.record(homesName, trajectory)); readErr != nil || now.Plain {
			return nil, errors.Join(err, s.moveBack(trajectory, &h))
		}
	}
	return h.Lower, nil
}

// setMoved records that a plain directory is a layer now, once that is on disk.
func (s *Store) setMoved(trajectory uint64, h *home) error {
	if err := s.syncMove(h); err != nil {
		return err
	}
	mounted := *h
	mounted.Plain, mounted.Before = false, nil
	return s.write(s.record(homesName, trajectory), mounted)
}

// syncMove makes the place of a plain directory durable, after it was moved to its layer or back.
func (s *Store) syncMove(h *home) error {
	layer := filepath.Dir(s.files(h.Lower[0].Name))
	return errors.Join(record.SyncDir(layer), record.SyncDir(filepath.Dir(layer)), record.SyncDir(filepath.Dir(h.Path)))
}

// moveBack makes a directory again what it was before setAside. At no time is there no directory: a
// trajectory without one is gone, and its layers go with it. So an empty one is replaced at once, which
// os.Rename does not do.
func (s *Store) moveBack(trajectory uint64, h *home) error {
	if err := unmount(h.Path); err != nil {
		return err
	}
	if err := unix.Rename(s.files(h.Lower[0].Name), h.Path); err != nil {
		return &os.LinkError{Op: "rename", Old: s.files(h.Lower[0].Name), New: h.Path, Err: err}
	}
	if err := s.syncMove(h); err != nil {
		return err
	}
	return s.restore(trajectory, h.Before)
}

// restore gives a directory the record that it had before setAside. If that fails, the record that stays
// means the same, see home.Before.
func (s *Store) restore(trajectory uint64, before *home) error {
	path := s.record(homesName, trajectory)
	if before == nil {
		return removeFile(path)
	}
	return s.write(path, before)
}

// removeFile removes a file or an empty directory, if it is there.
func removeFile(path string) error {
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// push makes the layer that a directory writes to one of those below, with an empty one on top.
func (s *Store) push(p *pins, trajectory uint64, path string, h *home) ([]Layer, error) {
	own, err := s.ownerIn(h)
	if err != nil {
		return nil, err
	}
	next := home{Path: path, Lower: slices.Concat([]Layer{{h.Upper, own}}, h.Lower), Root: h.Root, Owner: &own}
	p.addAll(next.Lower)
	like, err := ownerOf(path) // a trajectory that ended before may have lost its layers
	if err != nil {
		return nil, err
	}
	if next.Upper, err = s.newUpper(p, like); err != nil {
		return nil, err
	}
	if err := unmount(path); err != nil {
		return nil, err
	}
	if err := s.write(s.record(homesName, trajectory), next); err != nil {
		return nil, errors.Join(err, s.mount(h))
	}
	if err := s.mount(&next); err != nil {
		return nil, errors.Join(err, s.write(s.record(homesName, trajectory), h), s.mount(h))
	}
	return next.Lower, nil
}

// newUpper makes a layer to write to.
func (s *Store) newUpper(p *pins, like owner) (string, error) {
	name, err := p.newLayer()
	if err != nil {
		return "", err
	}
	return name, errors.Join(makeOwned(s.files(name), like), os.Mkdir(s.work(name), dirMode))
}

func (s *Store) work(layer string) string { return filepath.Join(s.dir, layersName, layer, workName) }

// Begin gives a new, empty directory the files of a snapshot, as those of its owner. A directory
// that has begun already is left alone.
func (s *Store) Begin(ctx context.Context, id, trajectory uint64, path string) error {
	before, err := s.home(trajectory)
	if err != nil || before != nil && before.began() {
		return err
	}
	p := s.newPins()
	defer p.release()
	h := new(home)
	if before != nil { // an earlier try was cut short
		*h = *before
	} else if h, err = s.beginning(p, id, path); err != nil {
		return err
	}
	mounts, why := s.mounts()
	if mounts {
		return s.beginMount(p, trajectory, before, h)
	}
	return s.beginCopy(ctx, trajectory, before, h, why)
}

// beginCopy copies the files of a snapshot into a directory. Why is what keeps layers from being mounted
// just now; nil: they never are. What can only be mounted leaves no record.
func (s *Store) beginCopy(ctx context.Context, trajectory uint64, before, h *home, why error) error {
	if len(h.Lower) != 1 {
		err := fmt.Errorf("the snapshot has %d layers, and this agent cannot mount them", len(h.Lower))
		if why != nil {
			err = fmt.Errorf("%w now: %w", err, why)
		}
		return err
	}
	if before == nil {
		if _, err := s.likeIn(h); err != nil {
			return err
		}
		if err := s.write(s.record(homesName, trajectory), h); err != nil {
			return err
		}
	}
	return s.copyInto(ctx, trajectory, h)
}

// beginning is the record of a directory that is to begin with a snapshot.
func (s *Store) beginning(p *pins, id uint64, path string) (*home, error) {
	snap, err := s.snapshot(p, id)
	if err != nil {
		return nil, err
	}
	own, err := ownerOf(path)
	if err != nil {
		return nil, err
	}
	if snap.Root != "" { // the users are those of the container, which are the same in all of them
		own = snap.Layers[0].owner
	}
	return &home{Path: path, Lower: snap.Layers, Root: snap.Root, Owner: &own}, nil
}

// beginMount mounts the layers of a snapshot over a directory. Before is the record of an earlier try
// to copy them, which stays if this fails; nil: there was none.
func (s *Store) beginMount(p *pins, trajectory uint64, before, h *home) error {
	p.addAll(h.Lower)
	like, err := s.likeIn(h)
	if err != nil {
		return err
	}
	if before != nil {
		if err := empty(h.Path); err != nil {
			return err
		}
	}
	if h.Upper, err = s.newUpper(p, like); err != nil {
		return err
	}
	if err := s.write(s.record(homesName, trajectory), h); err != nil {
		return errors.Join(err, s.notBegun(trajectory, before))
	}
	if err := s.mount(h); err != nil {
		return errors.Join(err, s.notBegun(trajectory, before))
	}
	return nil
}

// likeIn gives a directory that begins the owner that it is to have, and returns it.
func (s *Store) likeIn(h *home) (owner, error) {
	if h.Root == "" {
		if h.Owner == nil {
			return ownerOf(h.Path)
		}
		return *h.Owner, nil
	}
	like, err := ownerOf(s.files(h.Lower[0].Name))
	if err != nil {
		return owner{}, err
	}
	return like, os.Lchown(h.Path, int(like.UID), int(like.GID))
}

// notBegun has a directory not begun again, with the record that it had.
func (s *Store) notBegun(trajectory uint64, before *home) error {
	path := s.record(homesName, trajectory)
	if before == nil {
		return removeFile(path)
	}
	now, err := s.home(trajectory)
	if err == nil && now != nil && !now.began() {
		return nil
	}
	if err := s.write(path, before); err != nil {
		return errors.Join(err, removeFile(path)) // a record of files that are not there is worse
	}
	return nil
}

// snapshot reads the record of a snapshot, and pins its layers.
func (s *Store) snapshot(p *pins, id uint64) (*snapshot, error) {
	path := s.record(snapshotsName, id)
	snap, err := read[snapshot](path)
	if err == nil {
		p.addAll(append(slices.Clone(snap.Layers), Layer{Name: snap.Root}))
		_, err = os.Lstat(path) // one that was removed before may have lost its layers
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("snapshot %d: %w", id, ErrNoSnapshot)
	}
	return snap, err
}
