package evaluate

import "fmt"

// static is a service for each model, with GPUs of its own for ever. Replicas of
// a model take what has come first, one at a time.
type static struct {
	w        *world
	services map[string]*staticService
	gpus     int64
}

type staticService struct {
	units, free int64
	queue       []*call
}

func newStatic(w *world) *static {
	s := &static{w: w, services: make(map[string]*staticService)}
	for _, b := range w.in.generator.Params().Baseline.Static {
		for _, name := range b.Names {
			units, replicas := int64(b.Units.Value), int64(b.Replicas.Value)
			s.services[name] = &staticService{units: units, free: replicas}
			s.gpus += units * replicas
		}
	}
	return s
}

func (s *static) begin(*rollout) {}
func (s *static) end(*rollout)   {}

func (s *static) submit(c *call) {
	v := s.services[c.Service]
	if v == nil {
		s.w.fail(fmt.Errorf("no static service has model %q", c.Service))
		return
	}
	v.queue = append(v.queue, c)
	s.serve(v)
}

func (s *static) serve(v *staticService) {
	for v.free > 0 && len(v.queue) > 0 {
		c := v.queue[0]
		v.queue = v.queue[1:]
		v.free--
		c.started = s.w.loop.Now()
		c.queue += c.started - c.submitted
		units := c.Widest(v.units)
		d := c.Duration(units)
		s.w.loop.After(d, func() {
			v.free++
			c.exec += d
			c.busy += d * units
			s.w.ended(c, true)
			s.serve(v)
		})
	}
}

func (s *static) capacity() Capacity { return Capacity{"gpu", s.gpus} }
