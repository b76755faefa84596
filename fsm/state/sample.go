package state

const (
	// ReferenceBytesMax bounds what a sample says of where its bytes are.
	ReferenceBytesMax = 1024
	// SampleOverhead is what a sample costs beside its reference, in bytes.
	SampleOverhead = 128
	// SampleBytesMax bounds the bytes of all samples, in the buffer and in batches.
	SampleBytesMax = 512 << 20
	// BatchSamplesMax bounds what one step is given, and with it what one entry does.
	BatchSamplesMax = 1 << 14
	// BatchBytesMax bounds the bytes of its samples, and with them the answer to the trainer.
	BatchBytesMax = 4 << 20
)

// Sample is what a trajectory made for training. It is kept until the step after the one that
// it was given to, or until it is too old.
type Sample struct {
	Trajectory TrajectoryID
	Group      GroupKey
	// Version is that with which its trajectory began.
	Version uint64
	// Reward is the bits of a floating-point number, which the state machine does not read.
	Reward    uint64
	Tokens    uint64
	Reference string
}

// Bytes is what the sample costs.
func (r *Sample) Bytes() uint64 { return SampleOverhead + uint64(len(r.Reference)) }

// Batch is what the last step of a policy was given.
type Batch struct {
	Policy  string
	Step    uint64
	TakenAt int64 // log time
	Groups  []GroupKey
	// Samples are those of the groups, group by group.
	Samples []TrajectoryID
}

func (r *Sample) code(c *codec) {
	number(c, &r.Trajectory)
	number(c, &r.Group)
	number(c, &r.Version)
	c.word(&r.Reward)
	number(c, &r.Tokens)
	c.text(&r.Reference)
}

func (r *Batch) code(c *codec) {
	c.text(&r.Policy)
	number(c, &r.Step)
	signed(c, &r.TakenAt)
	list(c, &r.Groups, number[GroupKey])
	list(c, &r.Samples, number[TrajectoryID])
}

// PutSample stores a sample.
func (s *State) PutSample(r *Sample) {
	s.countSample(db(s).samples.put(db(s).enc, r.Trajectory, r), -1)
	s.countSample(r, 1)
}

// DeleteSample forgets the sample of a trajectory.
func (s *State) DeleteSample(id TrajectoryID) { s.countSample(db(s).samples.delete(id), -1) }

func (s *State) countSample(r *Sample, by int) {
	if r != nil {
		n := &db(s).index.rolloutTotals
		n.Samples += by
		n.SampleBytes += uint64(by) * r.Bytes()
	}
}

// Sample returns the sample of a trajectory, nil if it has none.
func (s *State) Sample(id TrajectoryID) *Sample { return db(s).samples.get(id) }

// Samples visits all samples in the order of their trajectories.
func (s *State) Samples(fn func(*Sample) bool) { db(s).samples.scan(0, fn) }

// PutBatch stores what the last step of a policy was given.
func (s *State) PutBatch(r *Batch) { db(s).batches.put(db(s).enc, r.Policy, r) }

// DeleteBatch forgets what the last step of a policy was given.
func (s *State) DeleteBatch(policy string) { db(s).batches.delete(policy) }

// Batch returns what the last step of a policy was given, nil if no step was given anything.
func (s *State) Batch(policy string) *Batch { return db(s).batches.get(policy) }

// Batches visits the batches of all policies.
func (s *State) Batches(fn func(*Batch) bool) { db(s).batches.scan("", fn) }
