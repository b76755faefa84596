package state

// State is everything that replicas agree on, with indexes over it. It has one
// writer; Copy gives readers and snapshots one that stays as it is.
type State struct {
	meta Meta

	namespaces   table[NamespaceID, Namespace, *Namespace]
	pools        table[PoolID, Pool, *Pool]
	nodes        table[NodeID, Node, *Node]
	trajectories table[TrajectoryID, Trajectory, *Trajectory]
	actions      table[ActionID, Action, *Action]
	attempts     table[ActionID, Attempt, *Attempt]
	requests     table[string, Request, *Request]
	work         table[Instance, work, *work]
	parked       table[Instance, work, *work]
	gpuClasses   table[GPUClassID, GPUClass, *GPUClass]
	residency    table[NodeID, Residency, *Residency]
	quotas       table[QuotaID, Quota, *Quota]
	returns      table[ReturnID, QuotaReturn, *QuotaReturn]
	events       eventRing
	classes      table[ClassID, Class, *Class]
	nodeGroups   table[GroupID, NodeGroup, *NodeGroup]
	jobs         table[JobID, Job, *Job]
	reservations table[JobID, Reservation, *Reservation]
	turns        table[TurnID, Turn, *Turn]
	nextState    //nolint:unused // empty but in a build for the fault suite

	index indexes
	enc   *codec
}

// New returns an empty state, as every replica starts with.
func New() *State {
	s := &State{events: newEventRing(1), enc: new(codec)}
	for i := range tables {
		tables[i].make(s)
	}
	for _, x := range indexed {
		x.make(&s.index)
	}
	return s
}

// Copy returns an independent state with the same content. It costs the same
// however large the state is.
func (s *State) Copy() *State {
	c := *s
	c.enc = new(codec)
	for i := range tables {
		tables[i].fork(&c)
	}
	for _, x := range indexed {
		x.fork(&c.index)
	}
	return &c
}

// Hash returns the hash of the whole state. It is a sum, kept up to date by
// every write, so asking costs nothing.
func (s *State) Hash() uint64 {
	sum := hashRow(new(codec), tableMeta, &s.meta) + s.events.hash
	for i := range tables {
		sum += tables[i].hash(s)
	}
	return sum
}

// Counts are totals over the cluster.
type Counts struct {
	Queued, Running, Ended, OpenTrajectories, NodesUp int
}
