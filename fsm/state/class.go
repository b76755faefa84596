package state

import (
	"cmp"
	"fmt"
	"math/bits"
	"slices"
)

const (
	// ClassesMax bounds how many classes are kept.
	ClassesMax = 10_000
	// widthsMax bounds of how many amounts of the key resource a class remembers
	// what was seen.
	widthsMax = 16
	// memory is how many attempts a mean is made of, so that it follows change.
	memory = 64
	// execNSMax bounds what is learned from, in nanoseconds: 52 days, as everywhere
	// in package scale.
	execNSMax = 1 << 52
)

// Class is what was learned of the actions of a namespace that name it.
type Class struct {
	ID        ClassID
	Namespace NamespaceID
	Name      string
	Seen      []WidthSeen // ascending by units, at most 16
	// Lifetimes are learned from level 3 on.
	Lifetimes Lifetimes
	// Sizes are learned from level 3 on, and from the first action with a size hint on.
	Sizes []SizeSeen // ascending by octave
}

// WidthSeen is what was learned from the attempts with this number of units of the key
// resource that succeeded.
type WidthSeen struct {
	Units    uint32
	MeanNS   int64
	Attempts uint64
}

// Weight is how many attempts a mean stands for.
func (w *WidthSeen) Weight() int64 { return int64(min(w.Attempts, memory)) }

// Learn returns the row with one more attempt in it. The mean is of all attempts
// at first, and later each new one counts for a 64th.
func (r *Class) Learn(units uint32, ns int64) *Class {
	if units == 0 || ns <= 0 || ns > execNSMax {
		return r
	}
	c := *r
	i := 0
	for i < len(r.Seen) && r.Seen[i].Units < units {
		i++
	}
	if i < len(r.Seen) && r.Seen[i].Units == units {
		c.Seen = append([]WidthSeen(nil), r.Seen...)
		w := &c.Seen[i]
		w.Attempts++
		w.MeanNS += (ns - w.MeanNS) / w.Weight()
		return &c
	}
	c.Seen = make([]WidthSeen, 0, len(r.Seen)+1)
	c.Seen = append(c.Seen, r.Seen[:i]...)
	c.Seen = append(c.Seen, WidthSeen{units, ns, 1})
	c.Seen = append(c.Seen, r.Seen[i:]...)
	c.forget(i)
	return &c
}

// Lived returns the row with one more attempt that had so much work, or, if it was ended by
// others, more than that.
func (r *Class) Lived(ns int64, ended bool) *Class {
	if ns <= 0 || ns > execNSMax {
		return r
	}
	c := *r
	c.Lifetimes = r.Lifetimes.with(ns, ended)
	return &c
}

// SizeSeen is what was learned from the attempts of actions of about the same size that
// succeeded.
type SizeSeen struct {
	// Octave is the number of binary digits of the size hint: 0 stands for all actions,
	// those without a hint too.
	Octave uint32
	// MeanNS is how long they would have taken with one unit.
	MeanNS   int64
	Attempts uint64
}

// Sized returns the row with one more attempt at an action of a size, 0 if that is unknown,
// that had so much work.
func (r *Class) Sized(hint uint64, ns int64) *Class {
	if hint == 0 && len(r.Sizes) == 0 || ns <= 0 || ns > execNSMax {
		return r
	}
	c := *r
	c.Sizes = sized(r.Sizes, 0, ns)
	if hint > 0 {
		c.Sizes = sized(c.Sizes, uint32(bits.Len64(hint)), ns)
	}
	return &c
}

// sized returns a copy with one more attempt.
func sized(seen []SizeSeen, octave uint32, ns int64) []SizeSeen {
	i, found := slices.BinarySearchFunc(seen, octave, func(s SizeSeen, octave uint32) int { return cmp.Compare(s.Octave, octave) })
	out := slices.Clone(seen)
	if !found {
		out = slices.Insert(out, i, SizeSeen{Octave: octave})
	}
	s := &out[i]
	s.Attempts++
	s.MeanNS += (ns - s.MeanNS) / int64(min(s.Attempts, memory))
	return out
}

// forget drops the width that was used least, but the newest, if there are too
// many.
func (r *Class) forget(newest int) {
	if len(r.Seen) <= widthsMax {
		return
	}
	least := -1
	for i := range r.Seen {
		if i != newest && (least < 0 || r.Seen[i].Attempts < r.Seen[least].Attempts) {
			least = i
		}
	}
	r.Seen = append(r.Seen[:least], r.Seen[least+1:]...)
}

func (r *Class) code(c *codec) {
	number(c, &r.ID)
	number(c, &r.Namespace)
	c.text(&r.Name)
	list(c, &r.Seen, func(c *codec, w *WidthSeen) {
		number(c, &w.Units)
		signed(c, &w.MeanNS)
		number(c, &w.Attempts)
	})
	trailingList(c, (*[]Lifetime)(&r.Lifetimes), func(c *codec, l *Lifetime) {
		number(c, &l.Bucket)
		number(c, &l.Ended)
		number(c, &l.Cut)
	})
	trailingList(c, &r.Sizes, func(c *codec, s *SizeSeen) {
		number(c, &s.Octave)
		signed(c, &s.MeanNS)
		number(c, &s.Attempts)
	})
}

// className finds a class by its name.
type className struct {
	namespace NamespaceID
	name      string
	id        ClassID
}

func (a className) less(b className) bool {
	if a.namespace != b.namespace {
		return a.namespace < b.namespace
	}
	return a.name < b.name
}

// Class returns a class, nil if there is none.
func (s *State) Class(id ClassID) *Class { return db(s).classes.get(id) }

// ClassByName returns a class of a namespace, nil if there is none.
func (s *State) ClassByName(ns NamespaceID, name string) *Class {
	k, _ := db(s).index.classNames.Get(className{namespace: ns, name: name})
	return db(s).classes.get(k.id)
}

// Classes visits the classes with IDs greater than after.
func (s *State) Classes(after ClassID, fn func(*Class) bool) { db(s).classes.scan(after+1, fn) }

// ClassCount returns how many classes there are.
func (s *State) ClassCount() int { return db(s).classes.rows.Len() }

// ClassesOf returns how many classes of a namespace there are.
func (s *State) ClassesOf(ns NamespaceID) int {
	n, _ := db(s).index.nsClasses.Get(ns)
	return n
}

// ClassLive returns how many actions of a class are queued or running.
func (s *State) ClassLive(id ClassID) int {
	n, _ := db(s).index.classLive.Get(id)
	return n
}

// PutClass stores a class, which keeps its name.
func (s *State) PutClass(r *Class) {
	if old := db(s).classes.put(db(s).enc, r.ID, r); old == nil {
		db(s).index.classNames.Set(className{r.Namespace, r.Name, r.ID})
		count(&db(s).index.nsClasses, r.Namespace, 1)
		s.refer(r.Namespace, 0, 1)
	}
}

// DeleteClass forgets a class.
func (s *State) DeleteClass(id ClassID) {
	if old := db(s).classes.delete(id); old != nil {
		db(s).index.classNames.Delete(className{namespace: old.Namespace, name: old.Name})
		count(&db(s).index.nsClasses, old.Namespace, -1)
		s.refer(old.Namespace, 0, -1)
	}
}

// countLive keeps count of the actions of a class that have not ended.
func (s *State) countLive(id ClassID, by int) {
	if id == 0 {
		return
	}
	if n, _ := db(s).index.classLive.Get(id); n+by == 0 {
		db(s).index.classLive.Delete(id)
	} else {
		db(s).index.classLive.Set(id, n+by)
	}
}

// checkClasses: they are found by their names, have learned what can be learned,
// and those that live actions name exist.
func (s *State) checkClasses() (err error) {
	s.Classes(0, func(r *Class) bool {
		switch {
		case r.ID > s.meta.LastClass || s.Namespace(r.Namespace) == nil || s.ClassByName(r.Namespace, r.Name) != r:
			err = fmt.Errorf("class %d of namespace %d is called %q, which is another's name, or the last is %d", r.ID, r.Namespace, r.Name, s.meta.LastClass)
		case len(r.Seen) > widthsMax:
			err = fmt.Errorf("class %d remembers %d widths", r.ID, len(r.Seen))
		}
		last := uint32(0)
		for _, w := range r.Seen {
			if w.Units <= last || w.MeanNS < 1 || w.MeanNS > execNSMax || w.Attempts == 0 {
				err = fmt.Errorf("class %d has seen %d attempts of %d ns with %d units after %d", r.ID, w.Attempts, w.MeanNS, w.Units, last)
			}
			last = w.Units
		}
		for i, z := range r.Sizes {
			if z.Octave > 64 || i == 0 && z.Octave != 0 || i > 0 && z.Octave <= r.Sizes[i-1].Octave || z.MeanNS < 1 || z.MeanNS > execNSMax || z.Attempts == 0 {
				err = fmt.Errorf("class %d has seen %d attempts with %d ns of work of size %d", r.ID, z.Attempts, z.MeanNS, z.Octave)
			}
		}
		return err == nil
	})
	if n := s.ClassCount(); err == nil && n > ClassesMax {
		err = fmt.Errorf("there are %d classes", n)
	}
	db(s).index.classLive.Scan(func(id ClassID, n int) bool {
		if err == nil && s.Class(id) == nil {
			err = fmt.Errorf("%d live actions name class %d, which does not exist", n, id)
		}
		return err == nil
	})
	return err
}
