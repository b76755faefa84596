package fsm

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"

	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
	"rota/sched"
)

// TestAnUploadThatStandsStillExpires: its parts are dropped, servers are told, and the client too if
// it comes back. One that goes on lasts as long as it takes.
func TestAnUploadThatStandsStillExpires(t *testing.T) {
	var effects []Effect
	r := newRestoring(t, "new")
	r.m.opts.OnEffects = func(e []Effect) { effects = append(effects, e...) }
	part := func(n uint32) *logv1.Command {
		return &logv1.Command{Verb: &logv1.Command_StageRestore{StageRestore: &logv1.StageRestore{Id: "u", Number: n, Data: []byte{1}}}}
	}
	for n := range uint32(3) { // slow, but it goes on
		if got := r.do(part(n)); got.Refusal != nil {
			t.Fatal(got.Refusal)
		}
		r.ns += state.RestoreIdleNS - 2e6
	}
	due, waits := int64(0), false
	r.m.View(func(s *state.State) { due, waits = nextDue(s) })
	if !waits || due != r.ns+2e6 {
		t.Fatalf("a tick is due at %d (%t), must be at %d", due, waits, r.ns+2e6)
	}
	r.do()
	r.m.View(func(s *state.State) {
		if s.RestorePartCount() != 3 {
			t.Error("the upload was dropped too early")
		}
	})
	r.do()
	r.m.View(func(s *state.State) {
		if s.RestorePartCount() != 0 {
			t.Error("the upload is still there")
		}
		if _, waits := nextDue(s); waits {
			t.Error("a tick is due for nothing")
		}
	})
	if !slices.Contains(effects, Effect{Kind: EffectUploadExpired, Name: "u", Index: 3}) {
		t.Errorf("nobody was told: %v", effects)
	}
	if got := r.do(part(3)).Refusal; got.GetReason() != "RESTORE_SUPERSEDED" || !strings.Contains(got.Message, "stood still") {
		t.Errorf("the client that came back was told %v", got)
	}
}

// TestAPartThatIsSentAgainKeepsAnUploadAlive: its number is not the highest. The time of the newest
// part is also known after a snapshot.
func TestAPartThatIsSentAgainKeepsAnUploadAlive(t *testing.T) {
	r := newRestoring(t, "new")
	part := func(n uint32) {
		r.Helper()
		if got := r.do(&logv1.Command{Verb: &logv1.Command_StageRestore{StageRestore: &logv1.StageRestore{Id: "u", Number: n, Data: []byte{1}}}}); got.Refusal != nil {
			t.Fatal(got.Refusal)
		}
	}
	part(0)
	part(1)
	r.ns += state.RestoreIdleNS / 2
	part(0)
	want := r.ns + state.RestoreIdleNS
	restored, err := state.Restore(bytes.NewReader(r.backup()))
	if err != nil {
		t.Fatal(err)
	}
	for what, s := range map[string]*state.State{"now": r.m.Fork(), "after a snapshot": restored} {
		if due, ok := s.RestoreDue(); !ok || due != want {
			t.Errorf("%s the upload is given up at %d (%t), must be at %d", what, due, ok, want)
		}
	}
	r.ns += state.RestoreIdleNS
	r.do()
	if _, ok := r.m.Fork().RestoreDue(); ok {
		t.Error("an upload is given up that is not there")
	}
	r.ns += state.RestoreIdleNS
	part(0)
	if due, _ := r.m.Fork().RestoreDue(); due != r.ns+state.RestoreIdleNS {
		t.Errorf("the next upload is given up at %d", due)
	}
}

// TestAPanicOfAnExpiryIsThatOfTimers: it is no panic of the command before it, which is carried out.
func TestAPanicOfAnExpiryIsThatOfTimers(t *testing.T) {
	r := newRestoring(t, "new")
	s := r.m.Fork()
	s.PutRestorePart(&state.RestorePart{Number: 5, Upload: "u", Data: []byte{1}}) // no first part: no write leaves that
	var b bytes.Buffer
	if err := s.Save(&b); err != nil {
		t.Fatal(err)
	}
	if err := r.m.Restore(io.NopCloser(&b)); err != nil {
		t.Fatal(err)
	}
	entry := entryLog(t, r.index+1, r.ns+2*state.RestoreIdleNS, parseCommand(t, "register node=n1 numa=2 inc=0")...)
	results, _ := r.m.Apply(entry).([]*logv1.Result)
	if len(results) != 1 || results[0].Refusal != nil {
		t.Errorf("the command before the expiry: %v", results)
	}
}

// TestRestoreOfGoldenBackups: what released builds have written is accepted by the checks of this one.
// If it fails, a check has changed its meaning for a level that is out: see state.RestoreForeign.
func TestRestoreOfGoldenBackups(t *testing.T) {
	for level := state.Level(1); level <= state.LevelMax-state.Level(nextLevels); level++ {
		n := 0
		for _, story := range readGolden(t, level) {
			for _, g := range story {
				if len(g.Snapshot) == 0 {
					continue
				}
				n++
				s, err := RestoreBackup(bytes.NewReader(g.Snapshot))
				if err != nil {
					t.Errorf("level %d, %s: %v", level, story[0].Story, err)
				} else if got := fmt.Sprintf("%016x", s.Hash()); got != g.Hash {
					t.Errorf("level %d, %s: the hash is %s, it was %s", level, story[0].Story, got, g.Hash)
				}
			}
		}
		if n == 0 {
			t.Errorf("level %d has no backup", level)
		}
	}
}

// TestCraftedBackupsAreRefused: their checksums and hashes are right, and their rows do not fit
// together. The refusal names the row, and the state stays as it was.
func TestCraftedBackupsAreRefused(t *testing.T) {
	old := newRestoring(t, "old")
	old.lines("register node=n1 numa=2 inc=0", "submit n=5 attempts=3")
	old.lines("reward name=f", "group name=g nodes=4", "job name=j nodes=4 cycle=100:0+40x4 setup=2s")
	crafted := map[string]func(s *state.State){
		"node n1": func(s *state.State) {
			n := *s.NodeByName("n1")
			n.Free = n.Cores()
			s.PutNode(&n)
		},
		"namespace 99": func(s *state.State) {
			a := *s.Action(3)
			a.Namespace = 99
			s.PutAction(&a)
		},
		"action 5": func(s *state.State) {
			m := *s.Meta()
			m.LastAction = 4
			s.SetMeta(m)
		},
		"action 1": func(s *state.State) {
			a := *s.Action(1)
			a.State = state.ActionQueued // and its attempt is live
			s.PutAction(&a)
		},
	}
	maps.Copy(crafted, undecidable())
	for want, craft := range crafted {
		t.Run(want, func(t *testing.T) {
			s := old.m.Fork()
			craft(s)
			var b bytes.Buffer
			if err := s.Save(&b); err != nil {
				t.Fatal(err)
			}
			if _, err := state.Restore(bytes.NewReader(b.Bytes())); err != nil {
				t.Logf("not even its rows can be loaded: %v", err)
			}
			if _, err := RestoreBackup(bytes.NewReader(b.Bytes())); !errors.Is(err, state.ErrSnapshotCorrupt) {
				t.Fatalf("the snapshot is taken: %v", err)
			}
			r := newRestoring(t, "new")
			parts := r.upload("u", b.Bytes(), state.RestorePartBytesMax)
			got := r.do(commitOf("u", parts, b.Bytes(), false)).Refusal
			if got.GetReason() != "BACKUP_UNUSABLE" || !strings.Contains(got.GetMessage(), want) {
				t.Errorf("refused with %v, must name %q", got, want)
			}
			r.m.View(func(s *state.State) {
				if s.Meta().ClusterID != "new" || s.Meta().LastAction != 0 {
					t.Error("something of the backup is there")
				}
			})
		})
	}
}

// undecidable are rows that fit together, and about which a decision would panic.
func undecidable() map[string]func(s *state.State) {
	return map[string]func(s *state.State){
		"action 3: the speed-up table": func(s *state.State) {
			a := *s.Action(3)
			a.Needs = &state.Needs{Profile: &state.Profile{SingleNS: 1, Points: []state.CurvePoint{{Units: 0, Ratio: 1_000_000}}}}
			s.PutAction(&a)
		},
		"action 4: it asks for 1 to 1 cores, and may have [2]": func(s *state.State) {
			a := *s.Action(4)
			a.Needs = &state.Needs{Cores: []uint32{2}}
			s.PutAction(&a)
		},
		"action 5: it asks for [3] GPUs": func(s *state.State) {
			a := *s.Action(5)
			a.Needs = &state.Needs{GPUs: &state.GPUDemand{Degrees: []uint32{3}}}
			s.PutAction(&a)
		},
		"job 1 is to start": func(s *state.State) {
			r := *s.Reservation(1)
			r.Anchor += 1_000_000 * s.NodeGroup(r.Group).Period
			s.PutReservation(&r)
		},
		"the action of reward function f": func(s *state.State) {
			r := *s.Reward("f")
			r.Action = []byte{0xff}
			s.PutReward(&r)
		},
		"class 1 has seen": func(s *state.State) {
			m := *s.Meta()
			m.LastClass = 1
			s.SetMeta(m)
			s.PutClass(&state.Class{ID: 1, Namespace: 1, Name: "c", Seen: []state.WidthSeen{{Units: 1 << 31, MeanNS: 1, Attempts: 1}}})
		},
		"policy 99": func(s *state.State) {
			m := *s.Meta()
			m.Settings.LedgerPolicy = 99
			s.SetMeta(m)
		},
		"the action of worker pool w": func(s *state.State) {
			s.PutPolicy(&state.Policy{Name: "p"})
			s.PutWorkerPool(&state.WorkerPool{Name: "w", Policy: "p", Start: []byte{0xff}, Options: []state.WorkerPoolOption{{Degree: 1}}, PayBack: 1})
		},
	}
}

// BenchmarkRestoreForeign is what the checks of a backup cost, beside the restore without them.
func BenchmarkRestoreForeign(b *testing.B) {
	st := benchCluster(b, 0)
	for i := range uint64(100) {
		st, _, _ = apply(st.Copy, 10+i, &logv1.Entry{TimeNs: int64(10 + i), Commands: []*logv1.Command{submission(1000)}}, sched.Deciders(), nil)
	}
	var out bytes.Buffer
	if err := st.Save(&out); err != nil {
		b.Fatal(err)
	}
	for name, restore := range map[string]func(io.Reader) (*state.State, error){"plain": state.Restore, "checked": RestoreBackup} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if _, err := restore(bytes.NewReader(out.Bytes())); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
