//go:build nextlevel

package state

import "slices"

// A build with this tag is the next release, for the fault suite: it has a feature level
// more, with a table, a field of a row that was there before, and a verb. So the suite
// upgrades a cluster from a build that has never heard of them.

// LevelMax is the newest level that this build knows, and that a new cluster has.
const LevelMax Level = 4

const tableNotes byte = 255

// Note is a row of the next level's table.
type Note struct{ Name, Text string }

func (r *Note) code(c *codec) {
	c.text(&r.Name)
	c.text(&r.Text)
}

// nextState has the next level's tables.
type nextState struct {
	notes table[string, Note, *Note]
}

var nextTables = []tableDef{
	defineTable(tableNotes, func(d *containers) *table[string, Note, *Note] { return &d.notes }, (*State).putNote),
}

func (s *State) putNote(r *Note) { db(s).notes.put(db(s).enc, r.Name, r) }

// nextMeta has the next level's fields of Meta.
type nextMeta struct {
	// NotesPut counts the notes that were put.
	NotesPut uint64
}

func (m *nextMeta) code(c *codec) { trailing(c, &m.NotesPut, number) }

// PutNote stores a note and counts it.
func (s *State) PutNote(r *Note) {
	s.putNote(r)
	s.meta.NotesPut++
}

// Notes returns all notes, by name.
func (s *State) Notes() (all []Note) {
	db(s).notes.scan("", func(r *Note) bool {
		all = append(all, *r)
		return true
	})
	return slices.Clip(all)
}
