package plan

const (
	// ReportsMax bounds the ends in one report.
	ReportsMax = 1024
	// ReportBytesMax bounds one report. Servers read 4 MiB.
	ReportBytesMax = 1 << 20
	// ReportMessageMax is how many bytes of the message a report has.
	ReportMessageMax = 1024
	// ReportTailsMax is how many bytes of both streams together a report has.
	ReportTailsMax = 4096
	// reportOverhead is at least what the end of an attempt takes beside these.
	reportOverhead = 128
)

// desk is what is written down: in the journal, and to the cluster. There is one write
// and one report at a time. What comes meanwhile goes into the next.
type desk struct {
	writing   *Journal // nil: none
	reporting bool
	// freezing: a report of what is frozen is under way.
	freezing bool
	// reported and forget are for the journal.
	reported, forget []Key
}

// write enters into the journal what is wanted and what may be forgotten. What is only
// going to be refused needs no lease. An attempt that waits for its engine, or for one that leaves
// its GPUs, is not entered: it would be lost with the agent.
func (p *Plan) write(now int64) {
	d, s := &p.desk, &p.session
	if d.writing != nil {
		return
	}
	j := Journal{Reported: d.reported, Forget: d.forget}
	if s.stage == entering && s.journaled != s.terms.Incarnation && p.table.dead(s.keep) {
		j.Incarnation = s.terms.Incarnation
	}
	ready := p.ready(now)
	p.table.each(func(a *attempt) {
		p.refuse(a)
		if a.phase == wanted && (a.refusal != nil || ready && p.served(a)) {
			j.Accept = append(j.Accept, a.key)
		}
	})
	if j.Incarnation == 0 && len(j.Reported)+len(j.Forget)+len(j.Accept) == 0 {
		return
	}
	d.writing, d.reported, d.forget = &j, nil, nil
	p.add(j)
}

// Journaled tells that the last Journal is written.
func (p *Plan) Journaled() {
	j := p.desk.writing
	if j == nil {
		return
	}
	p.desk.writing = nil
	if j.Incarnation != 0 {
		p.session.journaled = j.Incarnation
	}
	p.link.forget = append(p.link.forget, j.Reported...)
	for _, k := range j.Accept {
		a := p.table.byKey[k]
		switch {
		case a == nil: // no longer desired meanwhile, and never started
			p.desk.forget = append(p.desk.forget, k)
		case a.phase == wanted:
			if a.phase = accepted; a.refusal != nil {
				p.end(a, *a.refusal)
			}
		}
	}
}

// report sends ends of the current incarnation to the cluster: as many as fit, and one in
// any case.
func (p *Plan) report() {
	if p.desk.reporting {
		return
	}
	r := Report{Incarnation: p.table.incarnation}
	bytes := 0
	for _, a := range p.table.attempts {
		if a.gone || a.phase != ended || a.key.Incarnation != r.Incarnation {
			continue
		}
		if bytes += reportBytes(&a.exit); len(r.Exits) == ReportsMax || len(r.Exits) > 0 && bytes > ReportBytesMax {
			break
		}
		a.reporting = true
		r.Exits = append(r.Exits, a.exit)
	}
	if len(r.Exits) > 0 {
		p.desk.reporting = true
		p.add(r)
	}
}

// reportBytes is at least the size of an end in a report.
func reportBytes(e *Exit) int {
	return reportOverhead + min(len(e.Message), ReportMessageMax) + min(len(e.Stdout)+len(e.Stderr), ReportTailsMax)
}

// Reported tells that the entry at index holds the reports of attempts.
func (p *Plan) Reported(keys []Key, index uint64) {
	for _, k := range keys {
		if a := p.table.byKey[k]; a != nil && a.reporting && a.phase == ended {
			a.phase, a.ackIndex, a.reporting = reported, index, false
			p.desk.reported = append(p.desk.reported, k)
		}
	}
}

// ReportsDone ends the last Report. What was not confirmed is due again.
func (p *Plan) ReportsDone() {
	p.desk.reporting = false
	p.table.each(func(a *attempt) { a.reporting = false })
}
