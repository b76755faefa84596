package dst

import (
	"encoding/binary"
	"fmt"
	"slices"

	logv1 "rota/api/gen/log/v1"
	"rota/internal/sim"
)

const (
	callTimeout = 3 * second
	triesMax    = 12
	remembered  = 16 // of a client's own actions, trajectories and request IDs
)

// client asks for things and repeats what was not answered, with the same
// request ID.
type client struct {
	w      *World
	id     int
	link   int // of World.links
	server int
	// Newest of what it was given, and request IDs that it has used.
	actions, trajectories []uint64
	requests              []*logv1.Request
	acked                 []uint64 // first IDs and counts of accepted submissions
}

// do has a command committed. done is called with each answer that arrives: a
// command may be carried out more than once if nothing keeps it from that.
func (c *client) do(command *logv1.Command, tries int, done func(*logv1.Result)) {
	net := network{c.w, c.link}
	c.server = (c.server + 1) % c.w.config.servers
	server, over := c.server, false
	again := func(after int64) {
		if over {
			return
		}
		over = true
		if tries > 1 {
			c.w.loop.After(after, func() { c.do(command, tries-1, done) })
		}
	}
	net.send(server, func(s *member) {
		s.propose(command, func(r *logv1.Result, o outcome) {
			net.answer(server, func() {
				switch o {
				case refused:
					again(200 * millisecond)
				case unknown:
					if repeatable(command) {
						again(200 * millisecond)
					}
				default:
					over = true
					done(r)
				}
			})
		})
	})
	c.w.loop.After(callTimeout, func() {
		if repeatable(command) {
			again(0)
		}
	})
}

// repeatable says whether doing a command again is harmless.
func repeatable(c *logv1.Command) bool {
	switch v := c.Verb.(type) {
	case *logv1.Command_SubmitActions:
		return v.SubmitActions.Request != nil
	case *logv1.Command_OpenTrajectory:
		return v.OpenTrajectory.Request != nil
	case *logv1.Command_SubmitJob:
		return v.SubmitJob.Request != nil
	case *logv1.Command_AcquireTurn:
		return v.AcquireTurn.Request != nil
	case *logv1.Command_RequestMigration:
		return v.RequestMigration.Request != nil
	case *logv1.Command_CreateRollout:
		return v.CreateRollout.Request != nil
	case *logv1.Command_ReportGenerations:
		return v.ReportGenerations.Request != nil
	case *logv1.Command_ReportRewards:
		return v.ReportRewards.Request != nil
	}
	return true
}

// request makes up a request ID: mostly a new one, some that were used before,
// for the same or something else, and some that have expired.
func (c *client) request(d *sim.Draw, e Event) *logv1.Request {
	now := c.w.servers[c.server].committedTime()
	q := &logv1.Request{Id: fmt.Sprintf("c%d-%x", c.id, e.Luck), Digest: e.Luck}
	switch n := d.N(100); {
	case n < 20:
		return nil
	case n < 70: // rounded up, so that many are forgotten together
		q.ExpireNs = (now+d.Between(20, 120)*second)/(20*second)*(20*second) + 20*second
	case n < 75:
		q.ExpireNs = now - d.Between(0, 10)*second
	case n < 80:
		q.ExpireNs = now + 2*hour
	case n < 95 && len(c.requests) > 0:
		used := c.requests[d.N(int64(len(c.requests)))]
		q.Id, q.ExpireNs = used.Id, now+d.Between(1, 60)*second
		if d.Chance(500_000) {
			q.Digest = used.Digest
		}
	}
	c.requests = recent(c.requests, q)
	return q
}

// recent appends to a list that keeps only the newest.
func recent[T any](list []T, item T) []T {
	if len(list) == remembered {
		list = append(list[:0], list[1:]...)
	}
	return append(list, item)
}

func pick(d *sim.Draw, ids []uint64) uint64 {
	if len(ids) == 0 {
		return uint64(d.Between(1, 100)) // somebody else's, or nobody's
	}
	return ids[d.N(int64(len(ids)))]
}

func (c *client) submit(e Event) {
	d := sim.Draws(e.Luck).Of(0, 0)
	v := &logv1.SubmitActions{Request: c.request(&d, e)}
	if c.w.config.seed%2 == 0 && d.Chance(200_000) {
		v.Namespace = "team"
	}
	n := d.Between(1, 5)
	if d.Chance(100_000) {
		n = d.Between(6, 12)
	}
	trajectory := uint64(0)
	if d.Chance(250_000) && len(c.trajectories) > 0 {
		trajectory = pick(&d, c.trajectories)
	}
	for range n {
		v.Actions = append(v.Actions, c.w.config.newAction(&d, trajectory))
	}
	first := uint64(0)
	c.do(&logv1.Command{Verb: &logv1.Command_SubmitActions{SubmitActions: v}}, triesMax, func(r *logv1.Result) {
		if r.Refusal != nil {
			c.learn(r.Refusal.Reason, trajectory)
			return
		}
		if first != 0 && first != r.FirstId && v.Request != nil && v.Request.ExpireNs != 0 {
			c.w.fail("request IDs", "request %s was answered with actions from %d on and then, when repeated, from %d on", v.Request.Id, first, r.FirstId)
		}
		first = r.FirstId
		c.actions = recent(c.actions, r.FirstId)
		c.acked = append(c.acked, r.FirstId, uint64(r.Count))
		if pauses := sim.Draws(e.Luck).Of(3, 0); trajectory != 0 && pauses.Chance(900_000) {
			for range pauses.Between(1, 4) { // some of them while it has not begun, or has ended
				c.w.undoAfter(pauses.Between(0, 8000)*millisecond, func() { c.hold(&pauses, trajectory) })
			}
		}
	})
}

// learn forgets a trajectory that has ended.
func (c *client) learn(reason string, trajectory uint64) {
	if reason == "TRAJECTORY_NOT_FOUND" || reason == "TRAJECTORY_ENDED" {
		c.trajectories = slices.DeleteFunc(c.trajectories, func(id uint64) bool { return id == trajectory })
	}
}

// newAction makes up an action. A few ask for more than any node has.
func (c *config) newAction(d *sim.Draw, trajectory uint64) *logv1.Action {
	a := &logv1.Action{TrajectoryId: trajectory, AttemptsMax: uint32(d.Between(2, 4)), Spec: newSpec(d)}
	pool := c.pool(d)
	if trajectory == 0 {
		a.Pool = pool
	}
	a.CoresMin = uint32(d.Skewed(1, min(4, c.widest(pool))))
	if d.Chance(100_000) {
		a.CoresMin = uint32(d.Between(1, c.widest(pool)+1))
	}
	a.CoresMax = a.CoresMin + uint32(d.Between(0, 3))
	if d.Chance(500_000) {
		a.AttemptsMax = 1
	}
	if d.Chance(300_000) {
		a.MemoryBytes = uint64(d.Between(1, 12)) << 20
	}
	if d.Chance(200_000) {
		a.QueueTimeoutNs = d.Between(1, 60) * second
	}
	a.Fixed = d.Chance(50_000) // refused until resizing is active
	if a.Fixed {
		a.Labels = labelsOf(a.QueueTimeoutNs)
	}
	c.addNeeds(d, a, pool)
	useQuotas(a, d)
	if c.elastic {
		c.tell(d, a)
	}
	return a
}

// labelsOf makes labels of a number.
func labelsOf(n int64) []*logv1.Label {
	return []*logv1.Label{{Key: "run", Value: fmt.Sprint(n % 5)}, {Key: "team/task", Value: "a task"}}
}

// tell says something of how long an action takes, or which class may know it: now
// and then what is far from the truth, or what cannot be.
func (c *config) tell(d *sim.Draw, a *logv1.Action) {
	if d.Chance(500_000) {
		a.Class = fmt.Sprintf("class-%d", d.N(5))
	}
	if d.Chance(200_000) { // without a class it is refused
		a.SizeHint = uint64(d.Skewed(1, 1<<20))
	}
	if a.Needs == nil {
		a.Needs = &logv1.Needs{}
	}
	if d.Chance(300_000) && a.CoresMin == 1 && a.Needs.Gpus == nil {
		a.Needs.Cores = [][]uint32{{1, 2, 4}, {1, 3}, {1, 2, 3, 4, 6}, {1}}[d.N(4)]
		a.CoresMax = a.Needs.Cores[len(a.Needs.Cores)-1]
	}
	if d.Chance(300_000) {
		a.Needs.Profile = c.profile(d)
	}
}

func (c *config) profile(d *sim.Draw) *logv1.Profile {
	p := &logv1.Profile{}
	if d.Chance(800_000) {
		p.SingleNs = d.Skewed(5*millisecond, 60*second)
	}
	switch d.N(4) {
	case 0:
		p.Serial, p.SerialPpm = true, d.Between(0, 1_000_000)
	case 1:
		p.Points = []*logv1.Point{{Units: 2, RatioPpm: d.Between(500_000, 1_000_000)}, {Units: 4, RatioPpm: d.Between(490_000, 500_000)}}
	case 2:
		p.Points = []*logv1.Point{{Units: 3, RatioPpm: d.Between(300_000, 1_100_000)}}
	}
	return p
}

// newSpec is what decodeWork reads: how long the action runs, how long it takes to die, how it
// ends, and what the provider of its quotas says of it.
func newSpec(d *sim.Draw) []byte {
	b := binary.BigEndian.AppendUint64(nil, uint64(d.Skewed(5*millisecond, 60*second)))
	b = binary.BigEndian.AppendUint64(b, uint64(d.Skewed(0, 200*millisecond)))
	code, children := byte(0), byte(0)
	if d.Chance(150_000) {
		code = 1
	}
	if d.Chance(300_000) {
		children = 1
	}
	throttled, retry := byte(0), byte(0)
	if d.Chance(150_000) {
		throttled, retry = 1, byte(d.Skewed(0, 10))
	}
	return append(b, code, children, byte(d.N(101)), throttled, retry)
}

func decodeWork(spec []byte) sim.Work {
	return sim.Work{
		Run: int64(binary.BigEndian.Uint64(spec)), Stop: int64(binary.BigEndian.Uint64(spec[8:])),
		ExitCode: int32(spec[16]), Children: spec[17] == 1, Parallel: int64(spec[18]) * 10_000,
		Throttled: spec[19] == 1, RetryAfter: int64(spec[20]) * second, Usage: decodeUsage(spec),
	}
}

// open opens a trajectory, or some of one group that are to be spread.
func (c *client) open(e Event) {
	d := sim.Draws(e.Luck).Of(0, 0)
	v := &logv1.OpenTrajectory{Request: c.request(&d, e), Name: "t", MemoryBytes: uint64(d.Between(0, 16)) << 20}
	if d.Chance(500_000) {
		v.IdleTimeoutNs = d.Between(5, 90) * second
	}
	v.Pool = c.w.config.pool(&d)
	if d.Chance(200_000) {
		v.TimeoutNs = d.Between(5, 120) * second
		pauses := sim.Draws(e.Luck).Of(2, 0)
		v.PauseAtTimeout = pauses.Chance(500_000)
	}
	if d.Chance(300_000) {
		v.Objective = 1
	}
	if v.Objective != 0 {
		v.Labels = labelsOf(v.IdleTimeoutNs)
	}
	if d.Chance(200_000) {
		v.Spec = []byte{byte(d.N(256))} // nothing in the state machine reads it
	}
	boxed := sim.Draws(e.Luck).Of(1, 0)
	v.Container = boxed.Chance(300_000)
	if d.Chance(600_000) {
		c.openGroup(&d, v)
		return
	}
	c.openOne(v)
}

// openGroup opens some like v of one group, only the first with a request ID. They
// do not stay for long.
func (c *client) openGroup(d *sim.Draw, v *logv1.OpenTrajectory) {
	group, label := fmt.Sprintf("g%d", d.N(3)), []string{"zone", "zone", "rack", "nobody-has"}[d.N(4)]
	request := v.Request
	for range d.Between(2, 6) {
		c.openOne(&logv1.OpenTrajectory{
			Request: request, Name: v.Name, Pool: v.Pool, MemoryBytes: v.MemoryBytes / 4,
			IdleTimeoutNs: d.Between(5, 90) * second, SpreadGroup: group, SpreadLabel: label, Objective: v.Objective,
			Container: v.Container,
		})
		request = nil
	}
}

func (c *client) openOne(v *logv1.OpenTrajectory) {
	c.do(&logv1.Command{Verb: &logv1.Command_OpenTrajectory{OpenTrajectory: v}}, triesMax, func(r *logv1.Result) {
		if r.Refusal == nil {
			c.trajectories = recent(c.trajectories, r.FirstId)
		}
	})
}

func (c *client) close(id uint64, tries int) {
	c.do(&logv1.Command{Verb: &logv1.Command_CloseTrajectory{CloseTrajectory: &logv1.CloseTrajectory{Id: id}}}, tries, ignore)
}

// extend sets when a trajectory closes, often sooner than before, or takes that away.
func (c *client) extend(d *sim.Draw, id uint64) {
	c.do(&logv1.Command{Verb: &logv1.Command_ExtendTrajectory{ExtendTrajectory: &logv1.ExtendTrajectory{
		Id: id, TimeoutNs: max(d.Between(-20, 90), 0) * second, OnlyLater: d.Chance(300_000),
	}}}, triesMax, ignore)
}

// closeOrHold closes a trajectory, sets when it closes, or pauses it for a while.
func (c *client) closeOrHold(e Event, d *sim.Draw) {
	id, pauses := pick(d, c.trajectories), sim.Draws(e.Luck).Of(2, 0)
	switch {
	case pauses.Chance(400_000):
		c.hold(&pauses, id)
	case d.Chance(300_000):
		c.extend(d, id)
	default:
		c.close(id, triesMax)
	}
}

// hold pauses a trajectory for a while.
func (c *client) hold(d *sim.Draw, id uint64) {
	c.pause(id, false, 1)
	c.w.undoAfter(d.Between(0, 20)*second, func() { c.pause(id, true, triesMax) })
}

// pause pauses a trajectory, or resumes it.
func (c *client) pause(id uint64, resume bool, tries int) {
	c.do(&logv1.Command{Verb: &logv1.Command_PauseTrajectory{PauseTrajectory: &logv1.PauseTrajectory{Id: id, Resume: resume}}}, tries, ignore)
}

func (c *client) cancel(ids ...uint64) {
	c.do(&logv1.Command{Verb: &logv1.Command_CancelActions{CancelActions: &logv1.CancelActions{Ids: ids}}}, triesMax, ignore)
}

func (c *client) drain(node int, draining bool, tries int) {
	c.do(&logv1.Command{Verb: &logv1.Command_DrainNode{
		DrainNode: &logv1.DrainNode{Name: nodeName(node), Draining: draining},
	}}, tries, ignore)
}

func (c *client) resumePool(name string, tries int) {
	c.do(&logv1.Command{Verb: &logv1.Command_ResumePool{ResumePool: &logv1.ResumePool{Name: name}}}, tries, ignore)
}

func (c *client) forget(class string) {
	c.do(&logv1.Command{Verb: &logv1.Command_DeleteClass{DeleteClass: &logv1.DeleteClass{Name: class}}}, 1, ignore)
}

func ignore(*logv1.Result) {}
