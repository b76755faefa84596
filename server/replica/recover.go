package replica

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	logv1 "rota/api/gen/log/v1"
	"rota/fsm"
)

// Recovery makes a cluster of one server from what its disk has, after the majority was
// lost for good. Others join it with empty disks.
//
// It names one voter only. Two survivors that are recovered each by itself may have
// applied different entries up to the same index, and Raft, which compares index and term,
// would take their states for the same.
type Recovery struct {
	Dir string
	// Voter is the server of the folder, with the address that it will advertise.
	Voter Server
	// ClusterID is that of the recovered cluster: a new one, so that the servers that were
	// given up cannot take part if they come back.
	ClusterID string
	// Release is the name of this build.
	Release string
	// Machine is empty.
	Machine Machine
	Logger  hclog.Logger
}

// Found is what the disk of a stopped server has.
type Found struct {
	// Index and Term of the newest entry.
	Index, Term uint64
	// Members are the servers of the newest configuration, the voters first.
	Members []Server
	Voters  int
	// Behind is how far the log had reached, if that is beyond Index: entries that this
	// server acknowledged are missing here too.
	Behind uint64
}

// ErrNothing says that a folder has no state to recover.
var ErrNothing = errors.New("the folder has no state of a cluster")

// Inspect returns what a folder has, and changes nothing. ErrInUse: its server runs.
func Inspect(dir string) (*Found, error) {
	if _, err := os.Stat(filepath.Join(dir, boltName)); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNothing, err)
	}
	lock, err := lockDir(dir)
	if err != nil {
		return nil, err
	}
	defer func() { _ = lock.Close() }()
	f := &Found{}
	snaps, err := ReadSnapshots(dir)
	if err != nil {
		return nil, err
	}
	if len(snaps) > 0 {
		newest := snaps[len(snaps)-1]
		f.Index, f.Term = newest.Index, newest.Term
		f.members(newest.configuration)
	}
	if err := f.readLog(dir); err != nil {
		return nil, err
	}
	if f.Index == 0 || f.Voters == 0 {
		return nil, fmt.Errorf("%w: %s", ErrNothing, dir)
	}
	return f, f.readMark(dir)
}

func (f *Found) members(c raft.Configuration) {
	f.Members, f.Voters = nil, 0
	servers := slices.Clone(c.Servers)
	slices.SortStableFunc(servers, func(a, b raft.Server) int { return cmp.Compare(a.Suffrage, b.Suffrage) })
	for _, s := range servers {
		f.Members = append(f.Members, Server{ID: string(s.ID), Address: string(s.Address)})
		if s.Suffrage == raft.Voter {
			f.Voters++
		}
	}
}

// readLog looks at the entries behind the snapshot.
func (f *Found) readLog(dir string) error {
	raw, closeLog, err := openReader(dir)
	if err != nil {
		return err
	}
	defer closeLog()
	first, err1 := raw.FirstIndex()
	last, err2 := raw.LastIndex()
	if err := errors.Join(err1, err2); err != nil {
		return fmt.Errorf("read bounds of log: %w", err)
	}
	for index := max(first, f.Index+1); index <= last && last > 0; index++ {
		var l raft.Log
		err := raw.GetLog(index, &l)
		if err == nil {
			err = unseal(index, &l)
		}
		if err != nil {
			return fmt.Errorf("entry %d: %w", index, err)
		}
		f.Index, f.Term = l.Index, l.Term
		if l.Type == raft.LogConfiguration {
			f.members(raft.DecodeConfiguration(l.Data))
		}
	}
	return nil
}

func (f *Found) readMark(dir string) error {
	file, err := os.Open(filepath.Join(dir, "mark"))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	m, err := readMark(file)
	if err == nil && m.index > f.Index {
		f.Behind = m.index
	}
	return err
}

// Check refuses a voter that the folder does not know.
func (f *Found) Check(v Server) error {
	var known []string
	for _, s := range f.Members {
		if s.ID == v.ID {
			return nil
		}
		known = append(known, s.ID)
	}
	return fmt.Errorf("%w: the folder knows the servers %s, and not %s", ErrWrongServer, strings.Join(known, ", "), v.ID)
}

// Recover does it, and returns how many attempts ran in the state that was found; they
// count as lost. It may be repeated: if it is cut off, the folder has the old state or the
// new one. Only the whole of it makes the server vote again.
func Recover(c Recovery) (attempts uint32, err error) {
	if c.Logger == nil {
		c.Logger = hclog.NewNullLogger()
	}
	found, err := Inspect(c.Dir)
	if err != nil {
		return 0, err
	}
	if err := found.Check(c.Voter); err != nil {
		return 0, err
	}
	cfg := Config{ServerID: c.Voter.ID, Dir: c.Dir, Address: c.Voter.Address, Machine: c.Machine, Logger: c.Logger, LogStore: BoltDB}
	if _, err := os.Stat(filepath.Join(c.Dir, walName)); err == nil {
		cfg.LogStore = WAL
	}
	cfg.setDefaults()
	var fatal error
	g := newGuard(cfg.DiskHangLimit, func(err error) { fatal = err }, c.Logger)
	defer g.close()
	s, err := openStorage(&cfg, g)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, fatal, s.close()) }()
	_, trans := raft.NewInmemTransport(raft.ServerAddress(c.Voter.Address))
	machine := &recovered{Machine: c.Machine, c: &c, found: found}
	voters := raft.Configuration{Servers: []raft.Server{{ID: raft.ServerID(c.Voter.ID), Address: raft.ServerAddress(c.Voter.Address)}}}
	if err := raft.RecoverCluster(cfg.raftConfig(), machine, s.logs, s.stable, s.snaps, trans, voters); err != nil {
		return 0, fmt.Errorf("recover: %w", err)
	}
	return machine.attempts, s.mark.release(found.Index, found.Term)
}

// recovered is the state machine that RecoverCluster fills and takes a snapshot of. Before
// that, it becomes the state of another cluster: there is no moment at which a server could
// start with the old identity and a majority of its own.
type recovered struct {
	Machine
	c        *Recovery
	found    *Found
	failed   error
	attempts uint32
}

// Apply implements raft.FSM. RecoverCluster does not look at what it returns.
func (r *recovered) Apply(l *raft.Log) any {
	if err, ok := r.Machine.Apply(l).(error); ok && r.failed == nil {
		r.failed = err
	}
	return nil
}

// Snapshot implements raft.FSM.
func (r *recovered) Snapshot() (raft.FSMSnapshot, error) {
	if r.failed != nil {
		return nil, r.failed
	}
	var commands []*logv1.Command
	if r.Level() < fsm.RecoveredLevel {
		commands = append(commands, &logv1.Command{Verb: &logv1.Command_RaiseLevel{
			RaiseLevel: &logv1.RaiseLevel{Level: uint32(fsm.RecoveredLevel), Release: r.c.Release},
		}})
	}
	commands = append(commands, &logv1.Command{Verb: &logv1.Command_Refound{
		Refound: &logv1.Refound{ClusterId: r.c.ClusterID, Index: r.found.Index, Term: r.found.Term},
	}})
	data, err := (&logv1.Entry{Commands: commands}).MarshalVT()
	if err != nil {
		return nil, err
	}
	switch results := r.Machine.Apply(&raft.Log{Index: r.found.Index, Term: r.found.Term, Data: data}).(type) {
	case error:
		return nil, results
	case []*logv1.Result:
		for _, result := range results {
			if f := result.Refusal; f != nil {
				return nil, errors.New(f.Message)
			}
		}
		r.attempts = results[len(results)-1].Count
	}
	return r.Machine.Snapshot()
}
