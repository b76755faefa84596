package history

import (
	"path/filepath"
	"reflect"
	"sync"
	"testing"
)

func TestACallIsUnknownUntilItHasEnded(t *testing.T) {
	r := NewRecorder(Record{Scenario: "s", Seed: 3})
	call := r.Begin(Op{Client: 1, Verb: Submit, RequestID: "a"})
	under := r.Begin(Op{Client: 2, Verb: Get, Target: 7})
	call.IDs = []uint64{7}
	call.Finish(OK)

	rec := r.Record()
	if rec.Scenario != "s" || rec.Seed != 3 || len(rec.Ops) != 2 {
		t.Fatalf("recorded: %+v", rec)
	}
	if op := rec.Ops[0]; op.Outcome != OK || op.IDs[0] != 7 || op.End < op.Start || op.RequestID != "a" {
		t.Errorf("the call that has ended: %+v", op)
	}
	if op := rec.Ops[1]; op.Outcome != Unknown || op.End < op.Start || op.End == 0 {
		t.Errorf("the call that is under way: %+v", op)
	}

	under.Finish(Fail)
	if rec.Ops[1].Outcome != Unknown {
		t.Error("a record changed after it had been taken")
	}
	if op := r.Record().Ops[1]; op.Outcome != Fail {
		t.Errorf("the call that has ended since: %+v", op)
	}
}

func TestEverybodyRecordsAtTheSameTime(t *testing.T) {
	r := NewRecorder(Record{})
	var all sync.WaitGroup
	const workers, each = 8, 200
	for w := range workers {
		all.Go(func() {
			for i := range each {
				call := r.Begin(Op{Client: w, Target: uint64(i)})
				r.AddWatch(WatchEvent{Watcher: w}, WatchEvent{Watcher: w})
				r.AddSample(Sample{})
				call.Finish(OK)
				r.Record()
			}
		})
	}
	all.Wait()
	rec := r.Record()
	next := make([]uint64, workers)
	for _, op := range rec.Ops {
		if op.Outcome != OK || op.Target != next[op.Client] {
			t.Fatalf("client %d: %+v, want target %d", op.Client, op, next[op.Client])
		}
		next[op.Client]++
	}
	if len(rec.Ops) != workers*each || len(rec.Watch) != 2*workers*each || len(rec.Samples) != workers*each {
		t.Errorf("%d calls, %d events, %d samples", len(rec.Ops), len(rec.Watch), len(rec.Samples))
	}
}

func TestARecordIsLoadedAsItWasSaved(t *testing.T) {
	r := NewRecorder(Record{
		Scenario: "leader-kill", Seed: -5, Servers: []string{"server-1", "server-2"}, Agents: []string{"node-1"},
		Duration: 1, LeaseNS: 2, MarginNS: 3,
	})
	r.Begin(Op{Verb: Drain, Node: "n", Draining: true, Server: "server-1", Error: "<&>"}).Finish(Unknown)
	r.Begin(Op{Verb: OpenTrajectory, IDs: []uint64{1 << 63}, Replayed: true}).Finish(OK)
	r.AddFault(Fault{Name: "kill", Target: []string{"server-1"}, Start: 1, End: 2, Whole: 3, Happened: "exited by SIGKILL"})
	r.AddMember(Member{Change: "add-voter", ID: "server-4", Outcome: OK})
	r.AddSample(Sample{Server: "server-1", Hash: "00ff"})
	r.AddTurnaround(Turnaround{Start: 1, End: 2, Action: 3, State: "SUCCEEDED", Attempt: 1})
	r.AddWatch(WatchEvent{Revision: 9, Resumed: true})
	r.AddWatchNote(WatchNote{Server: "server-1", Kind: WatchBegan, Revision: 9, Lost: 3, Reason: "REVISION_TOO_OLD"})
	r.Update(func(rec *Record) {
		rec.Executions = []Execution{{Action: 1, Cores: []int{0, 2}, Complete: true}}
		rec.Final = []Action{{ID: 1, State: "LOST"}}
		rec.Healing = Healing{Stopped: 1, Left: []string{"a process"}}
		rec.Hashes = []Sample{{HashIndex: 7}}
		rec.Ends = []End{{Action: 1, Want: "a", Got: "b"}}
		rec.Abuse = &Abuse{Start: 1, Tried: map[string]int{"a": 1}, Achieved: []string{"b"}, MemoryPeaks: map[string]uint64{"server-1": 2}}
		rec.Logs = []Log{
			{Server: "server-1", First: 1, Entries: []Entry{{Index: 1, Term: 1, Voters: []string{"server-1"}}, {Index: 2, Term: 1, Data: []byte{0, 255}}}},
			{Server: "server-2", First: 5},
		}
	})
	want := r.Record()
	dir := filepath.Join(t.TempDir(), "store", "run")
	if err := want.Save(dir); err != nil {
		t.Fatal(err)
	}
	got, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("loaded:\n%+v\nsaved:\n%+v", got, want)
	}
	if _, err := Load(t.TempDir()); err == nil {
		t.Error("an empty folder is a record")
	}
}
