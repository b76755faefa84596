package fsm

import logv1 "rota/api/gen/log/v1"

func parsePauseCommand(word string, a args) *logv1.Command {
	switch word {
	case "pause", "resume-trajectory":
		return &logv1.Command{Verb: &logv1.Command_PauseTrajectory{PauseTrajectory: &logv1.PauseTrajectory{
			Id: a.num("id", 0), Resume: word != "pause",
		}}}
	case "frozen":
		return &logv1.Command{Verb: &logv1.Command_ReportFrozen{ReportFrozen: &logv1.ReportFrozen{
			Node: a.text("node"), Incarnation: a.num("inc", 0), Attempts: []*logv1.FrozenAttempt{{
				ActionId: a.num("action", 0), Attempt: uint32(a.num("attempt", 1)), Pause: uint32(a.num("pause", 1)),
			}},
		}}}
	}
	return parseSnapshotCommand(word, a)
}
