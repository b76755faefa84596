package rpc

import (
	logv1 "rota/api/gen/log/v1"
	rotav1 "rota/api/gen/rota/v1"
)

// needs returns the parts of an action's cost that most do not have, nil if it
// has none of them.
func needs(spec *rotav1.ActionSpec) *logv1.Needs {
	r := spec.Resources
	if len(r.GetAllowedCores())+len(r.GetQuotas()) == 0 && r.GetGpus() == nil && r.GetBandwidthBps() == 0 && spec.Profile == nil {
		return nil
	}
	n := &logv1.Needs{
		Cores: r.GetAllowedCores(), Profile: profile(spec.Profile), Gpus: gpus(r.GetGpus()), BandwidthBps: r.GetBandwidthBps(),
	}
	for _, q := range r.GetQuotas() {
		n.Quotas = append(n.Quotas, &logv1.QuotaUse{Quota: q.GetQuota(), Units: max(1, q.GetUnits())})
	}
	return n
}

func profile(p *rotav1.Profile) *logv1.Profile {
	if p == nil {
		return nil
	}
	out := &logv1.Profile{SingleNs: int64(p.Duration.AsDuration())}
	switch s := p.Speedup.(type) {
	case *rotav1.Profile_SerialPpm:
		out.Serial, out.SerialPpm = true, int64(s.SerialPpm)
	case *rotav1.Profile_Table:
		for _, point := range s.Table.GetPoints() {
			out.Points = append(out.Points, &logv1.Point{Units: point.GetUnits(), RatioPpm: int64(point.GetRatioPpm())})
		}
	}
	return out
}

func gpus(g *rotav1.GpuDemand) *logv1.Gpus {
	if g == nil {
		return nil
	}
	return &logv1.Gpus{
		Class: g.Class, Degrees: g.Gpus, MemoryBytes: g.MemoryBytes, Model: g.Model, SetupNs: int64(g.Setup.AsDuration()),
	}
}
