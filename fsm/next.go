//go:build nextlevel

package fsm

import (
	"google.golang.org/protobuf/encoding/protowire"

	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
)

// nextLevels is how many feature levels this build has more than a release.
const nextLevels = 1

// Numbers of the next level's verb among those of Command, and of its fields. The
// generated code does not know them, as that of a release would not.
const (
	nextVerbNumber protowire.Number = 1000
	nextNameNumber protowire.Number = 1
	nextTextNumber protowire.Number = 2
)

func init() {
	commandNumber := (&logv1.Entry{}).ProtoReflect().Descriptor().Fields().ByName("commands").Number()
	entryFields.fields[commandNumber].message.add(nextVerbNumber, knownField{known: true})
}

// PutNote is a command of the next level.
func PutNote(name, text string) *logv1.Command {
	note := protowire.AppendString(protowire.AppendTag(nil, nextNameNumber, protowire.BytesType), name)
	note = protowire.AppendString(protowire.AppendTag(note, nextTextNumber, protowire.BytesType), text)
	c := &logv1.Command{}
	c.ProtoReflect().SetUnknown(protowire.AppendBytes(protowire.AppendTag(nil, nextVerbNumber, protowire.BytesType), note))
	return c
}

// isNext reports whether a command is of the next level.
func isNext(c *logv1.Command) bool { return len(c.ProtoReflect().GetUnknown()) > 0 }

func (x *execution) nextVerb(c *logv1.Command) *logv1.Result {
	_, _, n := protowire.ConsumeTag(c.ProtoReflect().GetUnknown())
	note, _ := protowire.ConsumeBytes(c.ProtoReflect().GetUnknown()[n:])
	var row state.Note
	for len(note) > 0 {
		number, _, n := protowire.ConsumeTag(note)
		text, m := protowire.ConsumeString(note[n:])
		note = note[n+m:]
		if number == nextNameNumber {
			row.Name = text
		} else {
			row.Text = text
		}
	}
	x.s.PutNote(&row)
	return &logv1.Result{Count: 1}
}
