package state

import (
	"bytes"
	"errors"
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// sample is a state with a row in every table.
func sample() *State {
	s := New()
	s.SetMeta(Meta{ClusterID: "c", Settings: Settings{}.WithDefaults(), Now: 7, LastAction: 9, Level: LevelMin,
		LastTrajectory: 1, LastIncarnation: 3, LastNamespace: 1, LastPool: 1, LastNode: 1})
	s.PutNamespace(&Namespace{ID: 1, Name: "default"})
	s.PutPool(&Pool{ID: 1, Name: "default", Halted: "why"})
	s.PutNode(&Node{
		ID: 1, Name: "n1", Pool: 1, Incarnation: 3, JournalID: "j", State: NodeUp, Address: "a:1", Runtime: "r",
		Labels: []Label{{"arch", "amd64"}}, NUMA: []CoreSet{CoreRange(0, 2), CoreRange(500, 4)},
		Free: CoreRange(0, 2).Union(CoreRange(501, 3)), Memory: 1000, FreeMemory: 700, Running: 1, Trajectories: 1,
	})
	s.PutTrajectory(&Trajectory{ID: 1, Namespace: 1, Pool: 1, Node: 1, Name: "t", State: TrajectoryOpen, Memory: 300, Live: 1, IdleTimeoutNS: 5, Spread: Spread{"g", "arch", "amd64"}})
	s.PutAction(&Action{ID: 1, Namespace: 1, Pool: 1, Trajectory: 1, Node: 1, State: ActionRunning, CoresMin: 1, CoresMax: 2, AttemptsMax: 1, Attempt: 1, Spec: []byte("s")})
	s.PutAttempt(&Attempt{Node: 1, Action: 1, Number: 1, Incarnation: 3, Cores: CoreRange(500, 1), Limit: 300})
	s.PutAction(&Action{ID: 2, Namespace: 1, Pool: 1, State: ActionQueued, CoresMin: 1, CoresMax: 1, QueueDeadline: 99})
	s.PutAction(&Action{
		ID: 3, Namespace: 1, Pool: 1, State: ActionFailed, EndedAt: 5,
		Result: &Result{Reason: EndSignaled, ExitCode: -1, Signal: 9, Message: "m", Stdout: []byte{0}, ExecNS: math.MinInt64, MemoryPeak: math.MaxUint64},
	})
	s.PutRequest(&Request{ID: "r", Expires: 50, Verb: VerbSubmit, Digest: 1 << 60, FirstID: 1, Count: 3})
	s.PutWork(QueueOf(NodeQueue, 1))
	s.Park(QueueOf(TrajectoryTeardown, 1))
	for range 3 {
		s.AddEvent(Event{Kind: EventAction, Subject: 1, State: uint8(ActionRunning), ExitCode: -7})
	}
	return s
}

func TestSampleIsSound(t *testing.T) {
	if err := sample().Check(); err != nil {
		t.Fatal(err)
	}
}

func TestSnapshotRoundTrip(t *testing.T) {
	s := sample()
	var buf bytes.Buffer
	if err := s.Save(&buf); err != nil {
		t.Fatal(err)
	}
	first := buf.Bytes()
	r, err := Restore(bytes.NewReader(first))
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Check(); err != nil {
		t.Fatal(err)
	}
	if r.Hash() != s.Hash() {
		t.Fatalf("hash %x, was %x", r.Hash(), s.Hash())
	}
	var again bytes.Buffer
	if err := r.Save(&again); err != nil || !bytes.Equal(again.Bytes(), first) {
		t.Fatalf("saving what was restored gives other bytes (%v)", err)
	}
}

// TestSnapshotDamage: whatever byte is changed or cut off, a snapshot is refused
// or, where the compressed form has two ways to say the same, restored exactly.
func TestSnapshotDamage(t *testing.T) {
	var buf bytes.Buffer
	s, refused := sample(), 0
	if err := s.Save(&buf); err != nil {
		t.Fatal(err)
	}
	for i := range buf.Len() {
		bad := bytes.Clone(buf.Bytes())
		bad[i] ^= 1 << (i % 8)
		if r, err := Restore(bytes.NewReader(bad)); err != nil {
			refused++
		} else if r.Hash() != s.Hash() {
			t.Fatalf("a flipped bit in byte %d of %d was restored as something else", i, buf.Len())
		}
		if _, err := Restore(bytes.NewReader(buf.Bytes()[:i])); err == nil {
			t.Fatalf("a snapshot cut at byte %d of %d was accepted", i, buf.Len())
		}
	}
	if refused < buf.Len()*9/10 {
		t.Fatalf("only %d of %d flipped bits were noticed", refused, buf.Len())
	}
}

func TestSnapshotOfAnotherVersion(t *testing.T) {
	var buf bytes.Buffer
	if err := sample().Save(&buf); err != nil {
		t.Fatal(err)
	}
	b := buf.Bytes()
	b[len(snapshotMagic)] = 200
	if _, err := Restore(bytes.NewReader(b)); !errors.Is(err, ErrSnapshotVersion) {
		t.Fatalf("got %v", err)
	}
}

// TestHashIgnoresHistory: the hash depends on the rows and not on the writes that
// led to them.
func TestHashIgnoresHistory(t *testing.T) {
	a, b := sample(), sample()
	b.PutAction(&Action{ID: 4, State: ActionQueued, Namespace: 1, Pool: 1})
	if a.Hash() == b.Hash() {
		t.Fatal("a new row does not change the hash")
	}
	b.DeleteAction(4)
	if a.Hash() != b.Hash() {
		t.Fatal("a row that came and went changes the hash")
	}
}

// TestEveryTableIsHashedAndSaved: a row that differs in any table changes both
// the hash and the snapshot.
func TestEveryTableIsHashedAndSaved(t *testing.T) {
	writes := []struct {
		table string
		write func(*State)
	}{
		{"meta", func(s *State) { m := *s.Meta(); m.Now++; s.SetMeta(m) }},
		{"namespaces", func(s *State) { s.PutNamespace(&Namespace{ID: 2, Name: "x"}) }},
		{"pools", func(s *State) { s.PutPool(&Pool{ID: 2, Name: "x"}) }},
		{"nodes", func(s *State) { s.PutNode(&Node{ID: 2, Name: "x"}) }},
		{"trajectories", func(s *State) { s.PutTrajectory(&Trajectory{ID: 2}) }},
		{"actions", func(s *State) { s.PutAction(&Action{ID: 9}) }},
		{"attempts", func(s *State) { s.PutAttempt(&Attempt{Action: 9}) }},
		{"requests", func(s *State) { s.PutRequest(&Request{ID: "x"}) }},
		{"work", func(s *State) { s.PutWork(QueueOf(PoolQueue, 2)) }},
		{"parked", func(s *State) { s.Park(QueueOf(PoolQueue, 2)) }},
		{"node groups", func(s *State) { s.PutNodeGroup(&NodeGroup{ID: 1, Name: "g", Nodes: 4, WakeAt: 7}) }},
		{"jobs", func(s *State) {
			s.PutJob(&Job{ID: 1, Name: "j", State: JobQueued, Deployments: []Deployment{{Name: "d", ExecNS: []int64{1, 2}}}, Ran: []Ran{{1, 2, 3}}})
		}},
		{"reservations", func(s *State) {
			s.PutReservation(&Reservation{Job: 1, Cycle: Cycle{Period: 9, Segments: []Segment{{1, 2, 3}}}})
		}},
		{"turns", func(s *State) { s.PutTurn(&Turn{ID: 1, Deployment: 257, State: TurnWaiting}) }},
		{"events", func(s *State) { s.AddEvent(Event{Kind: EventNode}) }},
	}
	for _, w := range writes {
		s := sample()
		before := s.Hash()
		w.write(s)
		if s.Hash() == before {
			t.Errorf("%s is not part of the hash", w.table)
		}
		var buf bytes.Buffer
		if err := s.Save(&buf); err != nil {
			t.Fatal(err)
		}
		r, err := Restore(&buf)
		if err != nil {
			t.Errorf("%s: %v", w.table, err)
		} else if r.Hash() != s.Hash() {
			t.Errorf("%s is not part of the snapshot", w.table)
		}
	}
}

// TestEveryTableIsChecked: for each table there is something that Check finds
// wrong. That each has a check at all is a test in the root folder.
func TestEveryTableIsChecked(t *testing.T) {
	for _, c := range []struct {
		wants string
		write func(*State)
	}{
		{"a setting", func(s *State) { m := *s.Meta(); m.Settings.LeaseNS = 0; s.SetMeta(m) }},
		{"namespace 2 is called", func(s *State) { s.PutNamespace(&Namespace{ID: 2, Name: "x"}) }},
		{"which is another's name", func(s *State) { s.PutPool(&Pool{ID: 2, Name: "default"}) }},
		{"free cores", func(s *State) { n := *s.Node(1); n.Free = CoreSet{}; s.PutNode(&n) }},
		{"the newest are", func(s *State) {
			n := *s.Node(1)
			n.Incarnation = 9
			s.PutNode(&n)
			at := *s.Attempt(1, 1)
			at.Incarnation = 9
			s.PutAttempt(&at)
		}},
		{"live actions", func(s *State) { r := *s.Trajectory(1); r.Live = 2; s.PutTrajectory(&r) }},
		{"beyond the last", func(s *State) { s.PutTrajectory(&Trajectory{ID: 2, State: TrajectoryPending}) }},
		{"state 1, live attempt true", func(s *State) { a := *s.Action(1); a.State = ActionQueued; s.PutAction(&a) }},
		{"of no running action", func(s *State) { s.PutAttempt(&Attempt{Action: 8, Node: 7, Cores: CoreRange(1, 1)}) }},
		{"stands for 4", func(s *State) { s.PutRequest(&Request{ID: "x", Verb: VerbSubmit, FirstID: 7, Count: 4}) }},
		{"of no known kind", func(s *State) { s.PutWork(Queue{Kind: queueKinds}) }},
		{"no pool is halted", func(s *State) { s.PutPool(&Pool{ID: 1, Name: "default"}) }},
		{"beyond the last ID", func(s *State) { s.PutNodeGroup(&NodeGroup{ID: 1, Name: "g", Nodes: 4}) }},
		{"it has a reservation: true", func(s *State) {
			withJob(s)
			j := *s.Job(1)
			j.State, j.Group = JobSuspended, 0
			s.PutJob(&j)
		}},
		{"is not there", func(s *State) { s.PutReservation(&Reservation{Job: 9, Group: 9}) }},
		{"reserved for jobs 1 and 2", func(s *State) {
			withJob(s)
			j, reservation := *s.Job(1), *s.Reservation(1)
			j.ID, j.Name, reservation.Job, reservation.Anchor = 2, "other", 2, 55
			s.PutJob(&j)
			s.PutReservation(&reservation)
		}},
		{"before an older one", func(s *State) {
			withJob(s)
			j, g := *s.Job(1), *s.NodeGroup(1)
			j.Turns, g.Turn, g.Resident = 2, 2, j.Deployment(0)
			s.PutJob(&j)
			s.PutNodeGroup(&g)
			s.PutTurn(&Turn{ID: 1, Deployment: j.Deployment(0), State: TurnWaiting})
			s.PutTurn(&Turn{ID: 2, Deployment: j.Deployment(0), State: TurnHeld, Group: 1, Token: 1})
		}},
		{"newest event", func(s *State) { m := *s.Meta(); m.Revision++; s.SetMeta(m) }},
	} {
		s := sample()
		c.write(s)
		if err := s.Check(); err == nil || !strings.Contains(err.Error(), c.wants) {
			t.Errorf("Check says %v, want something with %q", err, c.wants)
		}
	}
}

// withJob adds a job with a reservation from slot 5 to 15 of each 50.
func withJob(s *State) {
	m := *s.Meta()
	m.LastGroup, m.LastJob, m.LastTurn, m.LastToken = 1, 2, 2, 1
	s.SetMeta(m)
	cycle := Cycle{Period: 50, Segments: []Segment{{0, 10, 4}}}
	s.PutNodeGroup(&NodeGroup{ID: 1, Name: "g", Nodes: 4, Period: 50})
	s.PutJob(&Job{ID: 1, Namespace: 1, Name: "j", State: JobRunning, Group: 1, Nodes: 4, Cycle: cycle, Deployments: []Deployment{{Name: "actor"}}})
	s.PutReservation(&Reservation{Job: 1, Group: 1, Cycle: cycle, Anchor: 5})
}

// TestCopyStays: a copy keeps its content whatever is written to the original.
func TestCopyStays(t *testing.T) {
	s := sample()
	c := s.Copy()
	want := c.Hash()
	for i := range 3000 {
		s.PutAction(&Action{ID: ActionID(100 + i), Namespace: 1, Pool: 1, State: ActionQueued})
		s.AddEvent(Event{Kind: EventAction})
	}
	s.DeleteAction(3)
	if c.Hash() != want || c.Action(3) == nil || c.Counts().Queued != 1 {
		t.Fatal("writing to the original changed its copy")
	}
	if _, ok := c.Event(4); ok {
		t.Fatal("a copy sees events from after it was made")
	}
	if err := c.Check(); err != nil {
		t.Fatal(err)
	}
}

func TestEventRing(t *testing.T) {
	s := New()
	m := Meta{Settings: Settings{}.WithDefaults()}
	m.Settings.EventsMax = 1500
	s.SetMeta(m)
	for range 5000 {
		s.AddEvent(Event{Kind: EventAction})
	}
	if s.FirstRevision() != 3501 {
		t.Fatalf("oldest kept is %d", s.FirstRevision())
	}
	if _, ok := s.Event(3500); ok {
		t.Fatal("a dropped event is still there")
	}
	for rev := uint64(3501); rev <= 5000; rev++ {
		if e, ok := s.Event(rev); !ok || e.Revision != rev {
			t.Fatalf("event %d is %v, %v", rev, e.Revision, ok)
		}
	}
	if len(db(s).events.chunks) > 3 {
		t.Fatalf("%d chunks are kept for 1500 events", len(db(s).events.chunks))
	}
}

func TestMulDiv(t *testing.T) {
	for _, c := range []struct{ a, b, c, want uint64 }{
		{6, 7, 2, 21},
		{math.MaxUint64, 1_000_000, math.MaxUint64, 1_000_000}, // the product needs 84 bits
		{9_360_000_000_000, 1_000_000, 3, 3_120_000_000_000_000_000},
		{math.MaxUint64, 2, 1, math.MaxUint64}, // saturates
		{0, 5, 7, 0},
	} {
		if got := MulDiv(c.a, c.b, c.c); got != c.want {
			t.Errorf("MulDiv(%d, %d, %d) = %d, want %d", c.a, c.b, c.c, got, c.want)
		}
	}
}

// TestDoubleBookingIsCorruption: a second live attempt of an action stops the
// replica.
func TestDoubleBookingIsCorruption(t *testing.T) {
	defer func() {
		if _, ok := recover().(*Corruption); !ok {
			t.Fatal("no corruption was reported")
		}
	}()
	s := sample()
	s.PutAttempt(&Attempt{Node: 2, Action: 1, Number: 2})
}

func TestCoreSet(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		cpus := rapid.SliceOfNDistinct(rapid.IntRange(0, CoresPerNodeMax-1), 0, 40, rapid.ID[int]).Draw(r, "cpus")
		var s CoreSet
		for _, c := range cpus {
			s.Add(c)
		}
		if s.Len() != len(cpus) {
			r.Fatalf("%d CPUs, set has %d", len(cpus), s.Len())
		}
		n := rapid.IntRange(0, 50).Draw(r, "n")
		low := s.First(n)
		if low.Len() != min(n, len(cpus)) || low.Minus(s) != (CoreSet{}) {
			r.Fatalf("First(%d) of %v is %v", n, s.Slice(), low.Slice())
		}
		rest := s.Minus(low).Slice()
		if got := low.Slice(); len(got) > 0 && len(rest) > 0 && got[len(got)-1] > rest[0] {
			r.Fatalf("First(%d) took %v and left %v", n, got, rest)
		}
		var back CoreSet
		c := codec{}
		c.cores(&s)
		d := codec{buf: c.buf, decoding: true}
		if d.cores(&back); d.err != nil || back != s {
			r.Fatalf("decoded %v, %v", back.Slice(), d.err)
		}
	})
}

// FuzzRestore: no snapshot, however broken, does anything but fail.
func FuzzRestore(f *testing.F) {
	var buf bytes.Buffer
	if err := sample().Save(&buf); err != nil {
		f.Fatal(err)
	}
	f.Add(buf.Bytes())
	f.Add([]byte(snapshotMagic))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := Restore(bytes.NewReader(data))
		if err == nil && s == nil {
			t.Fatal("neither a state nor an error")
		}
	})
}

// FuzzRow: a row that decodes encodes to the same bytes: the encoding is
// canonical, as the hash needs it to be.
func FuzzRow(f *testing.F) {
	for _, r := range []coder{
		&Action{ID: 5, Spec: []byte("x"), Result: &Result{Stdout: []byte("y")}}, &Node{ID: 1, NUMA: []CoreSet{CoreRange(3, 9)}},
	} {
		c := codec{}
		c.row(r)
		f.Add(tableActions, c.buf)
		f.Add(tableNodes, c.buf)
	}
	c := codec{}
	c.row(lengths("p", "c", 5))
	f.Add(tableLengths, c.buf)
	f.Fuzz(func(t *testing.T, table byte, data []byte) {
		r := rowOfTable(table)
		if r == nil {
			return
		}
		d := codec{buf: data, decoding: true}
		r.code(&d)
		if d.err != nil || len(d.buf) > 0 {
			return
		}
		e := codec{}
		e.row(r)
		if !bytes.Equal(e.buf, data) {
			t.Fatalf("decoded from %x, encodes to %x", data, e.buf)
		}
	})
}

// rowOfTable returns an empty row, nil if there is no such table.
func rowOfTable(id byte) coder {
	switch id {
	case tableMeta:
		return new(Meta)
	case tableEvents:
		return new(Event)
	}
	if t := tableOf(id); t != nil {
		return t.row()
	}
	return nil
}
