package plan

import "slices"

// Freeze stops all processes of an attempt where they are, or lets them go on. It is answered
// once, with Froze.
type Freeze struct {
	// Connection is the number of the connection that it is for.
	Connection int
	Key        Key
	Frozen     bool
}

// Frozen is an attempt that is frozen for a pause.
type Frozen struct {
	Key   Key
	Pause uint32
}

// ReportFrozen tells the cluster what is frozen, so that others get its CPUs. It is answered once,
// with FrozenReported.
type ReportFrozen struct {
	Incarnation uint64
	Attempts    []Frozen
}

func (Freeze) step()       {}
func (ReportFrozen) step() {}

// ice is how far an attempt is frozen.
type ice struct {
	// pause that it is to be frozen for; 0: it is to run.
	pause uint32
	// frozen: the supervisor has frozen it, and has not been told otherwise since.
	frozen bool
	// changing: the supervisor has been told and has not answered. unsure: it is not known whether
	// it has done what it was told last. It is told again at againAt.
	changing, unsure bool
	againAt          int64
	// failed counts the tries since one that was done.
	failed int
	// reported is the pause that a server has confirmed it to be frozen for.
	reported uint32
}

// freezeDoublings bounds how much longer each try waits than the one before: to 6.4 s. The supervisor
// does nothing else while it tries, and a process that hangs in the kernel makes it try for long.
const freezeDoublings = 6

// freeze has running attempts frozen that are to be, and lets others go on once they have their
// CPUs. What is frozen holds none.
func (p *Plan) freeze(now int64) {
	if !p.ready(now) {
		return
	}
	var report []Frozen
	p.table.each(func(a *attempt) {
		if a.phase != running || a.kill != 0 || a.key.Incarnation != p.table.incarnation || a.named == 0 {
			return // or nobody has said yet whether it is paused
		}
		i := &a.ice
		wanted := i.pause != 0
		if wanted && i.frozen && a.resizing == nil {
			p.table.askew = p.table.askew || len(a.holds) > 0
			p.table.keep(a, nil)
			if i.reported != i.pause && len(report) < ReportsMax {
				report = append(report, Frozen{a.key, i.pause})
			}
		}
		switch {
		case i.changing || i.frozen == wanted && !i.unsure, a.resizing != nil:
		case !wanted && (a.unsure || !slices.Equal(a.holds, a.wants)): // others are to leave its CPUs first
		case now < i.againAt:
			p.callAt(i.againAt)
		default:
			i.changing = true
			i.frozen = i.frozen && wanted
			p.add(Freeze{p.link.connection, a.key, wanted})
		}
	})
	if len(report) > 0 && !p.desk.freezing {
		p.desk.freezing = true
		p.add(ReportFrozen{p.table.incarnation, report})
	}
}

// Froze tells that the supervisor has done what Freeze said, or that this is not known.
func (p *Plan) Froze(connection int, k Key, frozen, done bool, now int64) {
	a := p.table.byKey[k]
	if a == nil || connection != p.link.connection || !a.ice.changing {
		return
	}
	a.ice.changing, a.ice.unsure = false, !done
	if done {
		a.ice.frozen, a.ice.failed = frozen, 0
	} else {
		a.ice.againAt = now + resizeAgain<<min(a.ice.failed, freezeDoublings)
		a.ice.failed++
	}
}

// FrozenReported ends the last ReportFrozen. What was not confirmed is due again.
func (p *Plan) FrozenReported(attempts []Frozen, confirmed bool) {
	p.desk.freezing = false
	for _, f := range attempts {
		if a := p.table.byKey[f.Key]; a != nil && confirmed {
			a.ice.reported = f.Pause
		}
	}
}
