package files

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// Info describes a file. A link is not followed.
type Info struct {
	fs.FileInfo
	// Target is where a link leads.
	Target string
}

func (h *Home) info(path string) (i Info, err error) {
	if i.FileInfo, err = h.root.Lstat(path); err == nil && i.Mode().Type() == fs.ModeSymlink {
		i.Target, err = h.root.Readlink(path)
	}
	return i, err
}

// Stat describes a file.
func (h *Home) Stat(path string) (i Info, err error) {
	err = h.at(path, func(path string) error {
		i, err = h.info(path)
		return err
	})
	return i, err
}

// List describes the files of a directory by name: at most limit of those whose names are
// greater than after, and whether there are more. What goes meanwhile is left out.
func (h *Home) List(path, after string, limit int) (files []Info, more bool, err error) {
	err = h.at(path, func(path string) error {
		names, err := h.names(path)
		if err != nil {
			return err
		}
		first, exact := slices.BinarySearch(names, after)
		if exact {
			first++
		}
		for _, name := range names[first:] {
			i, err := h.info(filepath.Join(path, name))
			switch {
			case errors.Is(err, fs.ErrNotExist):
			case err != nil:
				return err
			case len(files) == limit:
				more = true
				return nil
			default:
				files = append(files, i)
			}
		}
		return nil
	})
	return files, more, err
}

// names are those in a directory, in order.
func (h *Home) names(path string) ([]string, error) {
	d, err := h.root.OpenFile(path, os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	names, err := d.Readdirnames(listedMax + 1)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if len(names) > listedMax {
		return nil, ErrTooMany
	}
	slices.SortFunc(names, strings.Compare)
	return names, nil
}

// open opens a regular file. Opening waits for nothing, whatever it is.
func (h *Home) open(path string, flags int, mode fs.FileMode) (*os.File, fs.FileInfo, error) {
	f, err := h.root.OpenFile(path, flags|syscall.O_NONBLOCK|syscall.O_NOCTTY, mode)
	if errors.Is(err, syscall.ENXIO) { // a pipe that nobody reads, or a socket
		return nil, nil, ErrNotRegular
	}
	if err != nil {
		return nil, nil, err
	}
	st, err := f.Stat()
	switch {
	case err != nil:
	case st.IsDir():
		err = &fs.PathError{Op: "open", Path: path, Err: syscall.EISDIR}
	case !st.Mode().IsRegular():
		err = ErrNotRegular
	default:
		return f, st, nil
	}
	return nil, nil, errors.Join(err, f.Close())
}

// Read reads up to limit bytes of a regular file from an offset on, and says how large it is.
func (h *Home) Read(path string, offset int64, limit int) (data []byte, size int64, err error) {
	err = h.at(path, func(path string) error {
		f, st, err := h.open(path, os.O_RDONLY, 0)
		if err != nil {
			return err
		}
		defer f.Close()
		if size = st.Size(); offset >= size {
			return nil
		}
		data = make([]byte, min(int64(limit), size-offset))
		n, err := f.ReadAt(data, offset)
		data = data[:n]
		if errors.Is(err, io.EOF) { // it has become shorter
			err = nil
		}
		return err
	})
	return data, size, err
}

// Write says how a file is written.
type Write struct {
	Offset   int64
	Data     []byte
	Truncate bool        // the file ends where the data ends
	Mode     fs.FileMode // of a file that is made
	Parents  bool        // make the directories above it
}

// Write writes a part of a regular file, which is made if it is not there, and returns how large
// it is then.
func (h *Home) Write(path string, w Write) (size int64, err error) {
	err = h.below(path, func(path string) error {
		if w.Parents {
			if err := h.makeAll(filepath.Dir(path)); err != nil {
				return err
			}
		}
		f, err := h.create(path, w.Mode)
		if err != nil {
			return err
		}
		defer f.Close()
		if _, err = f.WriteAt(w.Data, w.Offset); err == nil && w.Truncate {
			err = f.Truncate(w.Offset + int64(len(w.Data)))
		}
		st, statErr := f.Stat()
		if err = errors.Join(err, statErr); err == nil {
			size = st.Size()
		}
		return err
	})
	return size, err
}

// create opens a regular file for writing. One that it makes has just these permissions, whatever
// the mask of the agent is.
func (h *Home) create(path string, mode fs.FileMode) (*os.File, error) {
	f, _, err := h.open(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err == nil {
		if err := f.Chmod(mode); err != nil {
			return nil, errors.Join(err, f.Close())
		}
		return f, nil
	}
	if !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	// What is there may be a link to what is not there yet.
	f, _, err = h.open(path, os.O_WRONLY|os.O_CREATE, mode)
	return f, err
}
