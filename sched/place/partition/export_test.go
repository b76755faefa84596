package partition

// OnlyTwoOrders makes the planner take no more than the fastest and the slowest worker first.
func (p *Planner) OnlyTwoOrders() { p.statesMax = 1 }
