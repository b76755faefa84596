package state

// The code methods describe each row once for encoding, decoding and hashing. A
// new field is a trailing one, of a feature level that no release has had.

func (r *Namespace) code(c *codec) {
	number(c, &r.ID)
	c.text(&r.Name)
}

func (r *Pool) code(c *codec) {
	number(c, &r.ID)
	c.text(&r.Name)
	c.text(&r.Halted)
}

func labels(c *codec, l *Labels) { c.text((*string)(l)) }

func (l *Label) code(c *codec) {
	c.text(&l.Key)
	c.text(&l.Value)
}

func (r *Node) code(c *codec) {
	number(c, &r.ID)
	c.text(&r.Name)
	number(c, &r.Pool)
	number(c, &r.Incarnation)
	c.text(&r.JournalID)
	number(c, &r.State)
	c.flag(&r.Draining)
	c.text(&r.Address)
	c.text(&r.Runtime)
	list(c, &r.Labels, func(c *codec, l *Label) { l.code(c) })
	list(c, &r.NUMA, (*codec).cores)
	c.cores(&r.Free)
	number(c, &r.Memory)
	number(c, &r.FreeMemory)
	signed(c, &r.RegisteredAt)
	number(c, &r.Running)
	number(c, &r.Trajectories)
	number(c, &r.ReservedFor)
	r.GPUs.code(c)
	number(c, &r.Bandwidth)
	number(c, &r.FreeBandwidth)
	trailing(c, &r.LowDisk, (*codec).flag)
	trailing(c, &r.Drained, (*codec).flag)
	trailing(c, &r.Resizes, (*codec).flag)
	trailing(c, &r.Spare, number)
	trailing(c, &r.DividedAt, signed)
	trailing(c, &r.DivideAt, signed)
	trailing(c, &r.Withheld, number)
	trailingList(c, &r.Sick, func(c *codec, f *GPUFault) { f.code(c) })
	trailingList(c, &r.Disabled, func(c *codec, f *GPUFault) { f.code(c) })
	trailing(c, &r.Trusted, number)
	trailing(c, &r.CacheBytes, number)
	trailing(c, &r.Alone, (*codec).flag)
	trailing(c, &r.Containers, (*codec).flag)
	trailing(c, &r.Thawing, number)
	trailing(c, &r.ShareAfterNS, signed)
	trailing(c, &r.Shared, (*codec).cores)
	trailing(c, &r.Sharing, number)
	trailing(c, &r.SharedAnchor, number)
}

func (r *Trajectory) code(c *codec) {
	number(c, &r.ID)
	number(c, &r.Namespace)
	number(c, &r.Pool)
	number(c, &r.Node)
	c.text(&r.Name)
	number(c, &r.State)
	number(c, &r.EndReason)
	number(c, &r.Memory)
	number(c, &r.Live)
	signed(c, &r.IdleTimeoutNS)
	signed(c, &r.IdleSince)
	signed(c, &r.OpenedAt)
	signed(c, &r.EndedAt)
	r.Spread.code(c)
	trailing(c, &r.RequestedCores, number)
	trailing(c, &r.RequestedBandwidth, number)
	trailing(c, &r.Aside, (*codec).flag)
	trailing(c, &r.Objective, number)
	trailing(c, &r.Spec, (*codec).text)
	trailing(c, &r.Rollout, number)
	trailing(c, &r.Group, number)
	trailing(c, &r.Labels, labels)
	trailing(c, &r.Deadline, signed)
	trailing(c, &r.Container, (*codec).flag)
	trailing(c, &r.Pauses, number)
	trailing(c, &r.PausedAt, signed)
	trailing(c, &r.Snapshot, number)
	trailing(c, &r.PauseNS, signed)
}

func (r *Action) code(c *codec) {
	number(c, &r.ID)
	number(c, &r.Namespace)
	number(c, &r.Pool)
	number(c, &r.Trajectory)
	number(c, &r.State)
	number(c, &r.CoresMin)
	number(c, &r.CoresMax)
	number(c, &r.Memory)
	number(c, &r.AttemptsMax)
	number(c, &r.Attempt)
	number(c, &r.Node)
	signed(c, &r.QueueDeadline)
	signed(c, &r.SubmittedAt)
	signed(c, &r.StartedAt)
	signed(c, &r.EndedAt)
	number(c, &r.Bypassed)
	signed(c, &r.BlockedAt)
	number(c, &r.ReservedOn)
	number(c, &r.CancelReason)
	c.bytes(&r.Spec)
	number(c, &r.Revision)
	optional(c, &r.Result, (*Result).code)
	number(c, &r.Class)
	number(c, &r.QuotasHeld)
	optional(c, &r.Needs, (*Needs).code)
	list(c, &r.QuotaKeys, number[uint32])
	trailing(c, &r.Aside, (*codec).flag)
	trailing(c, &r.Fixed, (*codec).flag)
	trailing(c, &r.SizeHint, number)
	trailingList(c, &r.Used, func(c *codec, q *QuotaUse) { q.code(c) })
	trailing(c, &r.Gang, number)
	trailing(c, &r.GangSize, number)
	trailing(c, &r.GangSpread, (*codec).flag)
	trailing(c, &r.GangEndedBy, number)
	trailingList(c, &r.ChargedUS, number[uint64])
	trailing(c, &r.Labels, labels)
}

func (r *Result) code(c *codec) {
	number(c, &r.Reason)
	signed(c, &r.ExitCode)
	signed(c, &r.Signal)
	c.text(&r.Message)
	c.bytes(&r.Stdout)
	c.bytes(&r.Stderr)
	signed(c, &r.ExecNS)
	signed(c, &r.CPUNS)
	number(c, &r.MemoryPeak)
}

func (r *Attempt) code(c *codec) {
	number(c, &r.Node)
	number(c, &r.Action)
	number(c, &r.Number)
	number(c, &r.Incarnation)
	c.cores(&r.Cores)
	number(c, &r.Reserved)
	number(c, &r.Limit)
	c.flag(&r.Stop)
	signed(c, &r.StartedAt)
	r.Chunk.code(c)
	signed(c, &r.SetUpNS)
	number(c, &r.Bandwidth)
	trailing(c, &r.Least, number)
	trailing(c, &r.Anchor, number)
	trailing(c, &r.CoreNS, number)
	trailing(c, &r.ResizedAt, signed)
	trailing(c, &r.ChargedUS, number)
	trailing(c, &r.Ice, number)
	trailing(c, &r.Pause, number)
	trailing(c, &r.Width, number)
	trailing(c, &r.Shares, (*codec).flag)
}

func (r *Request) code(c *codec) {
	c.text(&r.ID)
	signed(c, &r.Expires)
	number(c, &r.Verb)
	c.word(&r.Digest)
	number(c, &r.FirstID)
	number(c, &r.Count)
	trailing(c, &r.Namespace, number)
}

func (r *Event) code(c *codec) {
	number(c, &r.Revision)
	signed(c, &r.Time)
	number(c, &r.Subject)
	number(c, &r.Trajectory)
	number(c, &r.Namespace)
	number(c, &r.Node)
	number(c, &r.Attempt)
	signed(c, &r.ExitCode)
	number(c, &r.Kind)
	number(c, &r.State)
	number(c, &r.Reason)
}

func (r *Meta) code(c *codec) {
	c.text(&r.ClusterID)
	r.Settings.code(c)
	number(c, &r.Level)
	signed(c, &r.Now)
	number(c, &r.Revision)
	number(c, &r.LastAction)
	number(c, &r.LastTrajectory)
	number(c, &r.LastIncarnation)
	number(c, &r.LastNamespace)
	number(c, &r.LastPool)
	number(c, &r.LastNode)
	number(c, &r.WorkCursor)
	number(c, &r.Applied)
	number(c, &r.LastQuota)
	number(c, &r.LastClass)
	number(c, &r.LastGroup)
	number(c, &r.LastJob)
	number(c, &r.LastTurn)
	number(c, &r.LastToken)
	number(c, &r.PlaceCursor)
	c.text(&r.PlacementHalted)
	trailingList(c, (*[]WallMark)(&r.Wall), func(c *codec, m *WallMark) {
		signed(c, &m.At)
		signed(c, &m.AheadNS)
	})
	trailing(c, &r.Placing.Job, number)
	trailing(c, &r.Placing.Last, number)
	trailing(c, &r.Placing.Best, number)
	trailing(c, &r.Placing.Again, (*codec).flag)
	trailing(c, &r.Release, (*codec).text)
	trailing(c, &r.LastGeneration, number)
	trailing(c, &r.LastMigration, number)
	trailing(c, &r.LastRollout, number)
	trailing(c, &r.AccessEnabled, (*codec).flag)
	trailing(c, &r.AccessBootstraps, number)
	r.codeOrigin(c)
	trailing(c, &r.LastFileSnapshot, number)
	r.nextMeta.code(c)
}

func (r *Settings) code(c *codec) {
	signed(c, &r.LeaseNS)
	signed(c, &r.LeaseMarginNS)
	number(c, &r.QueueActionsMax)
	number(c, &r.QueueBytesMax)
	number(c, &r.TrajectoriesMax)
	signed(c, &r.RetentionNS)
	number(c, &r.RetentionBytesMax)
	number(c, &r.EventsMax)
	number(c, &r.BypassMax)
	signed(c, &r.BypassNSMax)
	number(c, &r.RequestsMax)
	signed(c, &r.LedgerSlotNS)
	signed(c, &r.LedgerSlots)
	signed(c, &r.LedgerStretchPPM)
	signed(c, &r.LedgerDutyPPM)
	number(c, &r.LedgerPolicy)
}

// work is a row of the work list: a queue that has to be looked at.
type work struct {
	Queue QueueKey
	// After is where the work goes on, in a waiting room: behind this ID.
	After uint64
}

func (r *work) code(c *codec) {
	number(c, &r.Queue)
	trailing(c, &r.After, number)
}
