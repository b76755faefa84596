package partition_test

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"rota/sched/place/partition"
)

// TestRebalance: two workers on which a trajectory takes 10 ns for each of its tokens and each in
// the batch.
func TestRebalance(t *testing.T) {
	curve, err := partition.NewCurve([]partition.Point{{Batch: 1, TokenNS: 10}}, 0)
	if err != nil {
		t.Fatal(err)
	}
	workers := []partition.Worker{{Curve: curve}, {Curve: curve}}
	at := func(home int) partition.Running { return partition.Running{Home: home, Movable: true} }
	stuck := func(home int) partition.Running { return partition.Running{Home: home} }
	for _, c := range []struct {
		what    string
		lengths []int64
		running []partition.Running
		most    int
		want    []partition.Move
	}{
		{"all is well", []int64{90, 80}, []partition.Running{at(0), at(1)}, 9, nil},
		// 10 x (90 + 80) becomes 900.
		{"two long ones are pulled apart", []int64{90, 80}, []partition.Running{at(0), at(0)}, 9, []partition.Move{{Trajectory: 0, From: 0, To: 1, GainNS: 800}}},
		{"the longest one generates now", []int64{90, 80}, []partition.Running{stuck(0), at(0)}, 9, []partition.Move{{Trajectory: 1, From: 0, To: 1, GainNS: 800}}},
		{"both generate now", []int64{90, 80}, []partition.Running{stuck(0), stuck(0)}, 9, nil},
		{"none may move", []int64{90, 80}, []partition.Running{at(0), at(0)}, 0, nil},
		{"a move costs as much as it gains", []int64{90, 80}, []partition.Running{{Home: 0, Movable: true, MoveNS: 800}, stuck(0)}, 9, nil},
		{"a move costs less than it gains", []int64{90, 80}, []partition.Running{{Home: 0, Movable: true, MoveNS: 799}, stuck(0)}, 9, []partition.Move{{Trajectory: 0, From: 0, To: 1, GainNS: 800}}},
		{"one has no worker, one a worker that is gone", []int64{90, 80, 70}, []partition.Running{stuck(0), stuck(-1), stuck(2)}, 0, []partition.Move{{Trajectory: 1, From: -1, To: 1}, {Trajectory: 2, From: 2, To: 1}}},
	} {
		got, err := new(partition.Planner).Rebalance(partition.Trajectories{Lengths: c.lengths}, c.running, workers, c.most)
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s: %+v, want %+v: %v", c.what, got, c.want, err)
		}
	}
	if _, err := new(partition.Planner).Rebalance(partition.Trajectories{Lengths: []int64{1}}, nil, workers, 1); err == nil {
		t.Error("a trajectory that is not described is accepted")
	}
}

// TestMovesGainWhatTheySay: one by one, each has the later one of its two workers drained earlier by
// its gain, and none makes the last one later.
func TestMovesGainWhatTheySay(t *testing.T) {
	moved := false
	rapid.Check(t, func(t *rapid.T) {
		lengths := drawnLengths(t, 12)
		workers, cost := drawnWorkers(t, len(lengths), 4, 3)
		share, contexts := drawnShares(t, workers), drawnContexts(t, len(lengths))
		running, of := make([]partition.Running, len(lengths)), make([]int, len(lengths))
		for i := range running {
			of[i] = rapid.IntRange(0, len(workers)-1).Draw(t, "home")
			running[i] = partition.Running{Home: of[i], Movable: rapid.Bool().Draw(t, "movable"), MoveNS: rapid.Int64Range(0, 50).Draw(t, "cost")}
		}
		most := rapid.IntRange(0, 6).Draw(t, "most")
		moves, err := new(partition.Planner).Rebalance(partition.Trajectories{Lengths: lengths, Contexts: contexts}, running, workers, most)
		if err != nil || len(moves) > most {
			t.Fatalf("%d moves, at most %d: %v", len(moves), most, err)
		}
		later := func(m partition.Move) int64 {
			return max(drainedNS(m.From, of, lengths, contexts, cost, share), drainedNS(m.To, of, lengths, contexts, cost, share))
		}
		for _, m := range moves {
			before, all := later(m), lastDrained(of, lengths, contexts, cost, share)
			if !running[m.Trajectory].Movable || of[m.Trajectory] != m.From {
				t.Fatalf("move %+v of a trajectory at %d: %+v", m, of[m.Trajectory], running[m.Trajectory])
			}
			of[m.Trajectory] = m.To
			if gain := before - later(m); gain != m.GainNS || gain <= running[m.Trajectory].MoveNS {
				t.Fatalf("move %+v gains %d and costs %d", m, gain, running[m.Trajectory].MoveNS)
			}
			if after := lastDrained(of, lengths, contexts, cost, share); after > all {
				t.Fatalf("move %+v has the last worker drained after %d, not %d", m, after, all)
			}
			moved = true
		}
	})
	if !moved {
		t.Error("nothing moved")
	}
}
