package state

// ClassID numbers a class of actions in the order of first use.
type ClassID uint32

// QuotaID numbers a quota in the order of creation.
type QuotaID uint32

// Needs are the parts of an action's cost (ARL-Tangram §4.1) that most actions do
// not have. They are shared between versions of a row and never change.
type Needs struct {
	// Cores are the allowed numbers of cores, ascending; empty if all from CoresMin
	// to CoresMax are.
	Cores   []uint32
	Profile *Profile   // nil: nothing is known
	GPUs    *GPUDemand // nil: none
	Quotas  []QuotaUse // in the order of QuotaID
	// Bandwidth in bits a second.
	Bandwidth uint64
}

// Profile is what a client knows of how long an action takes.
type Profile struct {
	// SingleNS is the duration with one unit of the key resource; 0: unknown.
	SingleNS int64
	// Serial says that the curve is Amdahl's law with SerialPPM. Otherwise it is
	// given by Points; without any it is unknown.
	Serial    bool
	SerialPPM int64
	Points    []CurvePoint
}

// CurvePoint is the efficiency with a number of units, in parts per million.
type CurvePoint struct {
	Units uint32
	Ratio int64
}

// GPUDemand asks for a chunk of GPUs of one node.
type GPUDemand struct {
	Class GPUClassID
	// Degrees are the allowed numbers of GPUs: ascending powers of two.
	Degrees []uint32
	// Memory that it takes on each GPU, in bytes; 0: all.
	Memory uint64
	// Model has to be resident on the chunk, which takes SetUpNS where it is not;
	// empty: none.
	Model   string
	SetUpNS int64
}

func (r *Needs) gpus() *GPUDemand {
	if r == nil {
		return nil
	}
	return r.GPUs
}

// GPUs returns what the action asks for of GPUs, nil if it needs none.
func (r *Action) GPUs() *GPUDemand { return r.Needs.gpus() }

// Bandwidth returns the bandwidth that the action needs, in bits a second.
func (r *Action) Bandwidth() uint64 {
	if r.Needs == nil {
		return 0
	}
	return r.Needs.Bandwidth
}

// QuotaUse is an amount of a quota.
type QuotaUse struct {
	Quota QuotaID
	Units uint32
}

func (u *QuotaUse) code(c *codec) {
	number(c, &u.Quota)
	number(c, &u.Units)
}

func (r *Needs) code(c *codec) {
	list(c, &r.Cores, number[uint32])
	optional(c, &r.Profile, (*Profile).code)
	optional(c, &r.GPUs, (*GPUDemand).code)
	list(c, &r.Quotas, func(c *codec, q *QuotaUse) { q.code(c) })
	number(c, &r.Bandwidth)
}

func (r *Profile) code(c *codec) {
	signed(c, &r.SingleNS)
	c.flag(&r.Serial)
	signed(c, &r.SerialPPM)
	list(c, &r.Points, func(c *codec, p *CurvePoint) {
		number(c, &p.Units)
		signed(c, &p.Ratio)
	})
}

func (r *GPUDemand) code(c *codec) {
	number(c, &r.Class)
	list(c, &r.Degrees, number[uint32])
	number(c, &r.Memory)
	c.text(&r.Model)
	signed(c, &r.SetUpNS)
}
