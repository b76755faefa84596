package layers

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
)

// pins keep layers from Sweep, and root file systems among Roots, until they are released.
type pins struct {
	s     *Store
	names []string
}

func (s *Store) newPins() *pins { return &pins{s: s} }

// add is called under the lock of the store.
func (p *pins) add(name string) {
	p.s.pinned[name]++
	p.names = append(p.names, name)
}

func (p *pins) addAll(layers []Layer) {
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	for _, l := range layers {
		p.add(l.Name)
	}
}

func (p *pins) release() {
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	for _, name := range p.names {
		if p.s.pinned[name]--; p.s.pinned[name] == 0 {
			delete(p.s.pinned, name)
		}
	}
}

// PinRoots keeps root file systems, which no record may name, among Roots until they are released.
func (s *Store) PinRoots(roots ...string) (release func()) {
	p := s.newPins()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, root := range roots {
		p.add(root)
	}
	return p.release
}

// newLayer makes an empty layer.
func (p *pins) newLayer() (name string, err error) {
	s := p.s
	s.mu.Lock()
	defer s.mu.Unlock()
	s.serial++
	name = strconv.FormatUint(s.serial, 10)
	if err := os.Mkdir(filepath.Join(s.dir, layersName, name), dirMode); err != nil {
		return "", err
	}
	p.add(name)
	return name, nil
}

// Sweep forgets directories that are gone, and removes layers that nothing has. Layers can be made
// while files are removed. What it cannot remove does not keep it from the rest.
func (s *Store) Sweep() error {
	err := s.dropUnused()
	dir := filepath.Join(s.dir, removedName)
	entries, readErr := os.ReadDir(dir)
	err = errors.Join(err, readErr)
	for _, e := range entries {
		err = errors.Join(err, s.removeAll(filepath.Join(dir, e.Name())))
	}
	return err
}

// dropUnused moves the layers that nothing has to those that are removed. Without all records it cannot
// tell which these are.
func (s *Store) dropUnused() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	used := map[string]bool{}
	if err := errors.Join(s.homesUse(used), s.snapshotsUse(used)); err != nil {
		return err
	}
	entries, err := os.ReadDir(filepath.Join(s.dir, layersName))
	for _, e := range entries {
		if !used[e.Name()] && s.pinned[e.Name()] == 0 {
			err = errors.Join(err, os.Rename(filepath.Join(s.dir, layersName, e.Name()), filepath.Join(s.dir, removedName, e.Name())))
		}
	}
	return err
}

// homesUse notes the layers of directories, and removes the records of those that are gone.
func (s *Store) homesUse(used map[string]bool) error {
	homes, err := s.ids(homesName)
	for _, id := range homes {
		h, readErr := read[home](s.record(homesName, id))
		switch {
		case errors.Is(readErr, fs.ErrNotExist): // it was as it was made again
		case s.isGone(id, h, readErr):
			err = errors.Join(err, os.Remove(s.record(homesName, id)))
		case readErr != nil:
			err = errors.Join(err, readErr)
		default:
			used[h.Upper] = true
			for _, l := range h.Lower {
				used[l.Name] = true
			}
		}
	}
	return err
}

// isGone reports whether the directory of a record went with its trajectory.
func (s *Store) isGone(id uint64, h *home, readErr error) bool {
	path := s.homeOf(id)
	switch {
	case errors.Is(readErr, ErrDamaged):
	case readErr != nil:
		return false
	default:
		path = h.Path
	}
	_, err := os.Lstat(path)
	return errors.Is(err, fs.ErrNotExist) && (h == nil || !h.Plain || s.pinned[h.Upper] == 0 && !s.moved(h))
}

// snapshotsUse notes the layers of snapshots.
func (s *Store) snapshotsUse(used map[string]bool) error {
	taken, err := s.ids(snapshotsName)
	for _, id := range taken {
		snap, readErr := read[snapshot](s.record(snapshotsName, id))
		switch {
		case errors.Is(readErr, fs.ErrNotExist):
		case readErr != nil:
			err = errors.Join(err, readErr)
		default:
			for _, l := range snap.Layers {
				used[l.Name] = true
			}
		}
	}
	return err
}

// moved: the directory is a layer, and not an overlay yet.
func (s *Store) moved(h *home) bool {
	_, err := os.Lstat(s.files(h.Lower[0].Name))
	return h.Plain && !errors.Is(err, fs.ErrNotExist)
}

// Roots are the names of root file systems that something needs; what is pinned is among them. With an
// error they are not all.
func (s *Store) Roots() (roots []string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name := range s.pinned {
		roots = append(roots, name)
	}
	homes, err := s.ids(homesName)
	if err != nil {
		return nil, err
	}
	for _, id := range homes {
		root, err := s.Root(id)
		if err != nil {
			return nil, err
		}
		roots = append(roots, root)
	}
	taken, err := s.ids(snapshotsName)
	if err != nil {
		return nil, err
	}
	for _, id := range taken {
		snap, err := read[snapshot](s.record(snapshotsName, id))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		if err == nil {
			roots = append(roots, snap.Root)
		}
	}
	return roots, nil
}
