package check

import (
	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
	"rota/jepsen/history"
)

// What a play does with quotas, GPUs and numbers of cores.

// quotaLimit and quotaKeys are those of all quotas of a play at first.
const quotaLimit, quotaKeys = 3, 2

func (p *play) createQuota(name string, kind state.QuotaKind, window int64) {
	op := history.Op{Client: 5, Verb: history.CreateQuota, Quota: name, Limit: quotaLimit, Keys: quotaKeys, WindowNS: window, Start: p.now, Outcome: history.OK}
	p.commit(&logv1.Command{Verb: &logv1.Command_CreateQuota{CreateQuota: &logv1.CreateQuota{
		Name: name, Kind: uint32(kind), Limit: quotaLimit, Keys: quotaKeys, WindowNs: window,
	}}})
	p.quotaOp(op)
}

// changeQuota changes how many may be in use at once, and reads it.
func (p *play) changeQuota(round int) {
	if round%8 != 6 {
		return
	}
	op := history.Op{Client: 5, Verb: history.UpdateQuota, Quota: "browser", Limit: quotaLimit - uint32(round/8%2), Start: p.now, Outcome: history.OK}
	p.commit(&logv1.Command{Verb: &logv1.Command_UpdateQuota{UpdateQuota: &logv1.UpdateQuota{Name: op.Quota, Limit: op.Limit}}})
	p.quotaOp(op)
	p.quotaOp(history.Op{Client: 5, Verb: history.GetQuota, Quota: op.Quota, Limit: op.Limit, Keys: quotaKeys, Start: p.now, Outcome: history.OK})
}

func (p *play) quotaOp(op history.Op) {
	p.now++
	op.End = p.now
	p.rec.Ops = append(p.rec.Ops, op)
}

// askScarce makes an action ask for something else than cores, or for a choice of
// these, and notes what it asks for.
func (p *play) askScarce(a *logv1.Action) {
	var asked history.Asked
	switch p.draw.IntN(3) {
	case 0:
		degrees := [][]uint32{{2}, {1, 2}, {4}}[p.draw.IntN(3)]
		a.CoresMin, a.CoresMax = 0, 0
		a.Needs = &logv1.Needs{Gpus: &logv1.Gpus{Degrees: degrees, Model: "m", SetupNs: second}}
		for _, n := range degrees {
			asked.GPUs = append(asked.GPUs, int(n))
		}
		asked.Model = "m"
	case 1:
		use := history.Use{Quota: []string{"browser", "search"}[p.draw.IntN(2)], Units: 1 + uint32(p.draw.IntN(2))}
		a.CoresMin, a.CoresMax = 0, 0
		a.Needs = &logv1.Needs{Quotas: []*logv1.QuotaUse{{Quota: use.Quota, Units: use.Units}}}
		asked.Quotas = append(asked.Quotas, use)
	}
	for n := a.CoresMin; n <= a.CoresMax; n++ {
		asked.Cores = append(asked.Cores, int(n))
	}
	p.asked = append(p.asked, asked)
}

// executeScarce is what an execution tells the witness of that.
func (p *play) executeScarce(x *history.Execution, s *state.State, a *state.Attempt) {
	x.Asked = p.asked[x.Action-1]
	for _, gpu := range a.Chunk.GPUs().Slice() {
		x.GPUs = append(x.GPUs, int(gpu))
	}
	p.serve(x)
	for i, key := range s.Action(a.Action).QuotaKeys {
		use := x.Asked.Quotas[i]
		use.Key = key + 1
		x.Uses = append(x.Uses, use)
	}
}
