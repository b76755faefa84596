package dst

import (
	"encoding/binary"
	"fmt"

	"rota/agent/plan"
	logv1 "rota/api/gen/log/v1"
	"rota/internal/sim"
)

// quotas is how many there are: of all kinds, scarce, some with several keys.
const quotas = 5

// unitsMost is the most that an action asks of a quota. No limit is below it, so
// that everything can end.
const unitsMost = 3

func quotaName(i int) string { return fmt.Sprintf("q%d", i) }

// quotasPerHour is how often an operator changes a quota.
const quotasPerHour = 30

// quotaChanges are what operators do to quotas: they are created first of all.
func (p *Plan) quotaChanges(c config) {
	d := sim.Draws(c.seed).Of(luckPlan, 4)
	for i := range quotas {
		p.add(Event{At: d.N(5 * second), Kind: Quota, On: i, Luck: d.Uint64()})
	}
	for range max(1, p.Length*quotasPerHour/hour) {
		p.add(Event{At: d.N(p.Length), Kind: Quota, On: int(d.N(quotas)), Luck: d.Uint64()})
	}
}

// quotaWindowMax is the longest window of a quota.
const quotaWindowMax = 90 * second

// changeQuota creates a quota, changes it, or deletes it and creates another.
func (c *client) changeQuota(i int, luck uint64) {
	d := sim.Draws(luck).Of(2, 0)
	name := quotaName(i)
	create := &logv1.CreateQuota{Name: name, Kind: uint32(d.Between(1, 3)), Limit: uint32(d.Between(unitsMost, 8)), Keys: uint32(d.Skewed(1, 4))}
	if create.Kind != 1 {
		create.WindowNs = d.Skewed(200*millisecond, quotaWindowMax)
	}
	adaptive := d.Chance(700_000)
	if d.Chance(200_000) {
		c.do(&logv1.Command{Verb: &logv1.Command_DeleteQuota{DeleteQuota: &logv1.DeleteQuota{Name: name}}}, 1, ignore)
	}
	update := &logv1.UpdateQuota{Name: name, Limit: uint32(d.Between(unitsMost, 8)), Keys: uint32(d.Between(0, 4)), Resume: d.Chance(500_000)}
	if d.Chance(500_000) {
		update.Limit = 0
	}
	c.do(&logv1.Command{Verb: &logv1.Command_CreateQuota{CreateQuota: create}}, triesMax, func(r *logv1.Result) {
		if r.Refusal != nil {
			c.do(&logv1.Command{Verb: &logv1.Command_UpdateQuota{UpdateQuota: update}}, triesMax, ignore)
		}
	})
	if d.Chance(500_000) { // refused until adapting is active
		c.do(&logv1.Command{Verb: &logv1.Command_UpdateQuota{UpdateQuota: &logv1.UpdateQuota{Name: name, Adaptive: &adaptive}}}, triesMax, ignore)
	}
}

// resumeQuotas has all quotas granted from again.
func (c *client) resumeQuotas() {
	for i := range quotas {
		c.do(&logv1.Command{Verb: &logv1.Command_UpdateQuota{UpdateQuota: &logv1.UpdateQuota{Name: quotaName(i), Resume: true}}}, triesMax, ignore)
	}
}

// useQuotas makes some actions need quotas, and half of those no cores.
func useQuotas(a *logv1.Action, d *sim.Draw) {
	if !d.Chance(300_000) {
		return
	}
	if a.Needs == nil {
		a.Needs = &logv1.Needs{}
	}
	first := d.N(quotas)
	for i := range d.Skewed(1, 3) {
		a.Needs.Quotas = append(a.Needs.Quotas, &logv1.QuotaUse{Quota: quotaName(int((first + 2*i) % quotas)), Units: uint32(d.Skewed(1, unitsMost))})
	}
	if a.Needs.BandwidthBps == 0 && d.Chance(500_000) {
		a.CoresMin, a.CoresMax = 0, 0
	}
}

// decodeUsage is what an action says that it used of quotas, of any that there are: two of three
// say nothing. It is drawn from how long the action runs, so that other draws are as they were.
func decodeUsage(spec []byte) (uses []plan.QuotaUse) {
	luck := binary.BigEndian.Uint64(spec)
	if luck%3 != 0 {
		return nil
	}
	d := sim.Draws(luck).Of(3, 0)
	for i := range quotas {
		if d.Chance(700_000) {
			uses = append(uses, plan.QuotaUse{Quota: quotaName(i), Units: uint64(d.Skewed(0, 3*unitsMost))})
		}
	}
	return uses
}
