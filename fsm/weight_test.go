package fsm

import (
	"testing"

	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
)

// TestHeavyCommandsShareNoEntryWithManyOthers: as many of them as one entry takes are applied in about
// 10 ms.
func TestHeavyCommandsShareNoEntryWithManyOthers(t *testing.T) {
	for name, c := range map[string]struct {
		command *logv1.Command
		most    int
	}{
		"reports of generations": {&logv1.Command{Verb: &logv1.Command_ReportGenerations{ReportGenerations: &logv1.ReportGenerations{
			Generations: make([]*logv1.GenerationReport, generationReportsMax), Workers: make([]*logv1.WorkerReport, workerReportsMax),
		}}}, 1},
		"predictions": {&logv1.Command{Verb: &logv1.Command_PredictGenerations{PredictGenerations: &logv1.PredictGenerations{
			Predictions: make([]*logv1.GenerationPrediction, PredictionsMax),
		}}}, 3},
		"moves": {&logv1.Command{Verb: &logv1.Command_MoveGenerations{MoveGenerations: &logv1.MoveGenerations{
			Moves: make([]*logv1.GenerationMove, generationMovesMax),
		}}}, 1},
		"a version":  {&logv1.Command{Verb: &logv1.Command_PublishVersion{PublishVersion: &logv1.PublishVersion{}}}, 1},
		"a batch":    {&logv1.Command{Verb: &logv1.Command_TakeBatch{TakeBatch: &logv1.TakeBatch{Groups: state.BatchSamplesMax}}}, 1},
		"any batch":  {&logv1.Command{Verb: &logv1.Command_TakeBatch{TakeBatch: &logv1.TakeBatch{Groups: 1<<32 - 1}}}, 1},
		"a step":     {&logv1.Command{Verb: &logv1.Command_AcquireTurn{AcquireTurn: &logv1.AcquireTurn{Step: 1}}}, 16},
		"a job ends": {&logv1.Command{Verb: &logv1.Command_ChangeJob{ChangeJob: &logv1.ChangeJob{}}}, 4},
	} {
		w := Weight(c.command)
		if w > EntryWeight {
			t.Errorf("%s: no entry has room for a weight of %d", name, w)
		}
		if n := EntryWeight / w; n > c.most {
			t.Errorf("%s: one entry takes %d of them, want at most %d", name, n, c.most)
		}
	}
}
