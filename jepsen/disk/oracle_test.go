package disk

import (
	"bytes"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
)

// oracle says by brute force what a power loss may leave: it keeps a shadow of
// the durable content of every file and the whole history of names, and replays
// that from the beginning for every question.
type oracle struct {
	root  *thing
	steps []step
}

// thing is a file or a folder.
type thing struct {
	folder  bool
	live    []byte
	durable []byte
	dirty   map[int]bool // sectors to be written by the next fsync
	zeroed  map[int]bool // sectors to be cut off by the next fsync
	// states are the contents since the last fsync that succeeded.
	states []fileState
	// failed: an fsync has failed, so states do not say what may be left.
	failed bool
}

type fileState struct {
	content []byte
	cut     bool
}

// step is a change of names: of one, or of two at once.
type step struct {
	sets   []set
	synced bool
}

type set struct {
	dir  *thing
	name string
	to   *thing
}

func newOracle() *oracle { return &oracle{root: &thing{folder: true}} }

func newFile(content []byte) *thing {
	f := &thing{live: content, durable: content}
	f.synced()
	return f
}

func (f *thing) synced() {
	f.dirty, f.zeroed, f.failed = map[int]bool{}, map[int]bool{}, false
	f.states = []fileState{{content: f.live}}
}

// replay returns the entries of all folders after the steps that count.
func (o *oracle) replay(counts func(i int, s step) bool) map[*thing]map[string]*thing {
	entries := map[*thing]map[string]*thing{}
	for i, s := range o.steps {
		if !counts(i, s) {
			continue
		}
		for _, e := range s.sets {
			if entries[e.dir] == nil {
				entries[e.dir] = map[string]*thing{}
			}
			if delete(entries[e.dir], e.name); e.to != nil {
				entries[e.dir][e.name] = e.to
			}
		}
	}
	return entries
}

// flatten lists everything under the root by its path.
func (o *oracle) flatten(entries map[*thing]map[string]*thing) map[string]*thing {
	all := map[string]*thing{".": o.root}
	var walk func(prefix string, dir *thing)
	walk = func(prefix string, dir *thing) {
		for name, to := range entries[dir] {
			all[path.Join(prefix, name)] = to
			walk(path.Join(prefix, name), to)
		}
	}
	walk(".", o.root)
	return all
}

func (o *oracle) now() map[string]*thing {
	return o.flatten(o.replay(func(int, step) bool { return true }))
}

// after is the tree that a power loss leaves if so many steps of those that
// were not synced survive.
func (o *oracle) after(kept int) map[string]*thing {
	return o.flatten(o.replay(func(i int, s step) bool {
		if s.synced {
			return true
		}
		kept--
		return kept >= 0
	}))
}

func (o *oracle) set(at string, to *thing) set {
	return set{o.now()[path.Dir(at)], path.Base(at), to}
}

func (o *oracle) step(sets ...set) { o.steps = append(o.steps, step{sets: sets}) }

// do follows one operation.
func (o *oracle) do(op op) {
	target := o.now()[op.Path]
	switch op.Kind {
	case opCreate:
		o.step(o.set(op.Path, newFile(nil)))
	case opMkdir:
		o.step(o.set(op.Path, &thing{folder: true}))
	case opRemove:
		o.step(o.set(op.Path, nil))
	case opLink:
		o.step(o.set(op.To, target))
	case opRename:
		if o.now()[op.To] != target { // else POSIX does nothing
			o.step(o.set(op.Path, nil), o.set(op.To, target))
		}
	case opWrite:
		target.write(op.Data, op.Off)
	case opTruncate:
		target.truncate(op.Off)
	case opSync:
		if target.folder {
			o.syncFolder(target)
		} else {
			target.sync()
		}
	case opFailSync:
		target.dirty, target.failed = map[int]bool{}, true
	}
}

func (f *thing) change(content []byte, from, to int, cut bool) {
	for s := from / sector; s*sector < to; s++ {
		f.dirty[s] = true
	}
	f.live = content
	f.states = append(f.states, fileState{content, cut})
}

func (f *thing) write(data []byte, off int) {
	end := off + len(data)
	content := slices.Clone(f.live)
	if end > len(content) {
		content = append(content, make([]byte, end-len(content))...)
	}
	copy(content[off:], data)
	f.change(content, off, end, false)
}

func (f *thing) truncate(size int) {
	if size < len(f.live) {
		for s := (size + sector - 1) / sector; s*sector < len(f.live); s++ {
			f.zeroed[s] = true
			f.dirty[s] = false
		}
		partial := (size + sector - 1) / sector * sector
		f.change(slices.Clone(f.live[:size]), size, min(partial, len(f.live)), true)
	} else if size > len(f.live) {
		f.change(append(slices.Clone(f.live), make([]byte, size-len(f.live))...), 0, 0, false)
	}
}

// at returns a sector of a content, zeros behind its end.
func at(content []byte, s int) []byte {
	image := make([]byte, sector)
	if s*sector < len(content) {
		copy(image, content[s*sector:])
	}
	return image
}

func (f *thing) sync() {
	durable := make([]byte, max(len(f.live), len(f.durable))+2*sector)
	copy(durable, f.durable)
	for s := range f.zeroed {
		if s*sector < len(durable) {
			copy(durable[s*sector:], make([]byte, sector))
		}
	}
	for s, dirty := range f.dirty {
		if dirty {
			copy(durable[s*sector:], at(f.live, s))
		}
	}
	failed := f.failed
	f.durable = durable[:len(f.live):len(f.live)]
	f.synced()
	// Once an fsync has failed, the durable content is not the live one.
	f.failed = failed
}

// syncFolder makes durable what is pending in a folder, and in those that a
// pending rename ties to it.
func (o *oracle) syncFolder(dir *thing) {
	tied := map[*thing]bool{dir: true}
	for range o.steps { // each pass ties one folder at least, or is the last
		for _, s := range o.steps {
			if !s.synced && slices.ContainsFunc(s.sets, func(e set) bool { return tied[e.dir] }) {
				for _, e := range s.sets {
					tied[e.dir] = true
				}
			}
		}
	}
	for i, s := range o.steps {
		o.steps[i].synced = s.synced || tied[s.sets[0].dir]
	}
	// What is pending happens, if at all, behind what is durable.
	slices.SortStableFunc(o.steps, func(a, b step) int {
		switch {
		case a.synced == b.synced:
			return 0
		case a.synced:
			return -1
		}
		return 1
	})
}

// judge says what is wrong with what a power loss has left.
func (o *oracle) judge(left map[string]found, lost Loss, tear bool) error {
	want := o.after(lost.NamesKept)
	wanted, got := slices.Sorted(maps.Keys(want)), slices.Sorted(maps.Keys(left))
	if !slices.Equal(wanted, got) {
		return fmt.Errorf("names left %q, want %q", got, wanted)
	}
	numbers := map[*thing]uint64{}
	for name, f := range want {
		if n := numbers[f]; n != 0 && n != left[name].ino {
			return fmt.Errorf("%s is no longer the same file as under its other name", name)
		}
		numbers[f] = left[name].ino
		content := left[name].content
		switch {
		case f.folder != left[name].folder:
			return fmt.Errorf("%s: folder %v, want %v", name, left[name].folder, f.folder)
		case f.folder:
		case !tear && content != string(f.durable):
			return fmt.Errorf("%s: %s, want the synced %s", name, show(content), show(string(f.durable)))
		case tear && !f.failed && !f.mayTear([]byte(content)):
			return fmt.Errorf("%s: %s cannot be a mixture of its %d states", name, show(content), len(f.states))
		}
	}
	return nil
}

// mayTear tries every number of sizes that may have survived.
func (f *thing) mayTear(left []byte) bool {
	for m, s := range f.states {
		if len(s.content) != len(left) {
			continue
		}
		from, to := m, m+1
		for from > 0 && !f.states[from].cut {
			from--
		}
		for to < len(f.states) && !f.states[to].cut {
			to++
		}
		if mixture(left, f.states[from:to]) {
			return true
		}
	}
	return false
}

// mixture says whether each sector is as in one of the states.
func mixture(left []byte, states []fileState) bool {
	for s := 0; s*sector < len(left); s++ {
		valid := min(sector, len(left)-s*sector)
		if !slices.ContainsFunc(states, func(st fileState) bool {
			return bytes.Equal(at(st.content, s)[:valid], left[s*sector:s*sector+valid])
		}) {
			return false
		}
	}
	return true
}

// adopt makes what is there the durable state, as after a restart.
func adopt(left map[string]found) *oracle {
	o := newOracle()
	byNumber := map[uint64]*thing{}
	for _, name := range slices.Sorted(maps.Keys(left)) {
		switch is := left[name]; {
		case name == ".":
		case is.folder:
			o.step(o.set(name, &thing{folder: true}))
		default:
			if byNumber[is.ino] == nil {
				byNumber[is.ino] = newFile([]byte(is.content))
			}
			o.step(o.set(name, byNumber[is.ino]))
		}
	}
	for i := range o.steps {
		o.steps[i].synced = true
	}
	return o
}

// show is a content that a reader can compare: the first byte of each run.
func show(content string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d bytes", len(content))
	for i := range len(content) {
		if i == 0 || content[i] != content[i-1] {
			fmt.Fprintf(&b, " %d:%02x", i, content[i])
		}
	}
	return b.String()
}
