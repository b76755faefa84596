package fsm

import logv1 "rota/api/gen/log/v1"

// updateNamespace reads
//
//	set-namespace name=a weight=3 queued=5 running=2 cores=4 gpus=1 trajectories=9 memory=1024
func (a args) updateNamespace() *logv1.Command {
	c := &logv1.UpdateNamespace{Name: a.text("name")}
	for _, f := range []struct {
		word string
		to   **uint32
	}{{"weight", &c.Weight}, {"queued", &c.QueuedMax}, {"running", &c.RunningMax}, {"cores", &c.CoresMax}, {"gpus", &c.GpusMax}, {"trajectories", &c.TrajectoriesMax}} {
		if a.text(f.word) != "" {
			n := uint32(a.num(f.word, 0))
			*f.to = &n
		}
	}
	if a.text("memory") != "" {
		n := a.num("memory", 0)
		c.MemoryMax = &n
	}
	return &logv1.Command{Verb: &logv1.Command_UpdateNamespace{UpdateNamespace: c}}
}
