package fsm

import (
	"fmt"
	"strings"

	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
)

// parseSnapshotCommand reads
//
//	snapshot traj=1 name=base req=r1
//	delete-snapshot id=1
//	snapshot-is node=n inc=1 id=1 state=ready bytes=10 message=m
//
// and knows no other verb.
func parseSnapshotCommand(word string, a args) *logv1.Command {
	switch word {
	case "snapshot":
		return &logv1.Command{Verb: &logv1.Command_ChangeSnapshot{ChangeSnapshot: &logv1.ChangeSnapshot{
			Change: &logv1.ChangeSnapshot_Create{Create: &logv1.CreateSnapshot{
				Request: a.request(), TrajectoryId: a.num("traj", 0), Name: a.text("name"),
			}},
		}}}
	case "delete-snapshot":
		return &logv1.Command{Verb: &logv1.Command_ChangeSnapshot{ChangeSnapshot: &logv1.ChangeSnapshot{
			Change: &logv1.ChangeSnapshot_Delete{Delete: a.num("id", 0)},
		}}}
	case "snapshot-is":
		said, wanted := uint32(0), a.text("state")
		for s, name := range snapshotStates {
			if name == wanted {
				said = uint32(s)
			}
		}
		return &logv1.Command{Verb: &logv1.Command_ReportSnapshots{ReportSnapshots: &logv1.ReportSnapshots{
			Node: a.text("node"), Incarnation: a.num("inc", 0), Reports: []*logv1.SnapshotReport{{
				SnapshotId: a.num("id", 0), State: said, Bytes: a.num("bytes", 0), Message: a.text("message"),
			}},
		}}}
	}
	return nil
}

var snapshotStates = map[state.FileSnapshotState]string{
	state.FileSnapshotCreating: "creating", state.FileSnapshotReady: "ready", state.FileSnapshotFailed: "failed",
	state.FileSnapshotRemoving: "removing", state.FileSnapshotLost: "lost",
}

// showSnapshots says which snapshots of files are in another state, or of another size, or gone.
func (s *story) showSnapshots(were *state.State) string {
	var out strings.Builder
	s.state.FileSnapshots(0, func(r *state.FileSnapshot) bool {
		old := were.FileSnapshot(r.ID)
		if old == nil || old.State != r.State || old.Bytes != r.Bytes {
			fmt.Fprintf(&out, "   snapshot %d of trajectory %d %s, %d bytes", r.ID, r.Trajectory, snapshotStates[r.State], r.Bytes)
			if r.Message != "" {
				fmt.Fprintf(&out, ": %s", r.Message)
			}
			out.WriteString("\n")
		}
		return true
	})
	were.FileSnapshots(0, func(r *state.FileSnapshot) bool {
		if s.state.FileSnapshot(r.ID) == nil {
			fmt.Fprintf(&out, "   snapshot %d is gone\n", r.ID)
		}
		return true
	})
	return out.String()
}
