package rpc

import (
	"context"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	logv1 "rota/api/gen/log/v1"
	rotav1 "rota/api/gen/rota/v1"
	"rota/fsm/state"
)

// GetClass returns what was learned of one class.
func (s *Server) GetClass(ctx context.Context, req *rotav1.GetClassRequest) (*rotav1.GetClassResponse, error) {
	if err := checkClass(req.Namespace, req.Name).err(); err != nil {
		return nil, err
	}
	if err := s.catchUp(ctx, req.AllowStale); err != nil {
		return nil, err
	}
	resp := &rotav1.GetClassResponse{}
	var err error
	s.Machine.View(func(st *state.State) {
		var ns state.NamespaceID
		if ns, err = namespaceID(st, req.Namespace); err != nil {
			return
		}
		if c := st.ClassByName(ns, req.Name); c != nil {
			resp.Class = classMessage(st, c)
			return
		}
		err = notFound("CLASS_NOT_FOUND", "there is no class %q in namespace %q: ListClasses has their names", req.Name, orDefault(req.Namespace))
	})
	return resp, err
}

// ListClasses returns a page of the classes of a namespace.
func (s *Server) ListClasses(ctx context.Context, req *rotav1.ListClassesRequest) (*rotav1.ListClassesResponse, error) {
	p, v := newPage(req.PageSize, req.PageToken, 5, hashText(orDefault(req.Namespace)))
	if err := firstOf(checkName("namespace", req.Namespace), v).err(); err != nil {
		return nil, err
	}
	if err := s.catchUp(ctx, req.AllowStale); err != nil {
		return nil, err
	}
	st := s.Machine.Fork()
	ns, err := namespaceID(st, req.Namespace)
	if err != nil {
		return nil, err
	}
	resp := &rotav1.ListClassesResponse{}
	c := &collector{page: p}
	st.Classes(state.ClassID(p.after), func(class *state.Class) bool {
		return c.visit(uint64(class.ID), func() proto.Message {
			if class.Namespace != ns {
				return nil
			}
			return appendRow(&resp.Classes, classMessage(st, class))
		})
	})
	resp.NextPageToken = c.nextToken()
	return resp, nil
}

// DeleteClass forgets a class.
func (s *Server) DeleteClass(ctx context.Context, req *rotav1.DeleteClassRequest) (*rotav1.DeleteClassResponse, error) {
	if err := checkClass(req.Namespace, req.Name).err(); err != nil {
		return nil, err
	}
	_, err := s.propose(ctx, &logv1.Command{Verb: &logv1.Command_DeleteClass{
		DeleteClass: &logv1.DeleteClass{Namespace: orDefault(req.Namespace), Name: req.Name},
	}})
	return &rotav1.DeleteClassResponse{}, err
}

func checkClass(namespace, name string) *violation {
	if name == "" {
		return wrong("name", "is required")
	}
	return firstOf(checkName("namespace", namespace), checkText("name", name, nameBytesMax))
}

func classMessage(st *state.State, c *state.Class) *rotav1.Class {
	m := &rotav1.Class{Namespace: st.Namespace(c.Namespace).Name, Name: c.Name, LiveActions: uint32(st.ClassLive(c.ID))}
	for _, w := range c.Seen {
		m.Widths = append(m.Widths, &rotav1.ClassWidth{
			Units: w.Units, MeanDuration: durationpb.New(time.Duration(w.MeanNS)), Attempts: w.Attempts,
		})
	}
	for _, l := range c.Lifetimes {
		m.Lifetimes = append(m.Lifetimes, &rotav1.ClassLifetime{
			Least: durationpb.New(time.Duration(state.LifetimeLeast(l.Bucket))),
			Below: durationpb.New(time.Duration(state.LifetimeLeast(l.Bucket + 1))),
			Ended: float64(l.Ended) / state.LifetimeUnit, Cut: float64(l.Cut) / state.LifetimeUnit,
		})
	}
	for _, z := range c.Sizes {
		size := &rotav1.ClassSize{MeanWork: durationpb.New(time.Duration(z.MeanNS)), Attempts: z.Attempts}
		if z.Octave > 0 {
			size.Least = 1 << (z.Octave - 1)
			size.Most = size.Least - 1 + size.Least
		}
		m.Sizes = append(m.Sizes, size)
	}
	quantiles := c.Lifetimes.Quantiles(500_000, 900_000, 990_000)
	for i, to := range []**durationpb.Duration{&m.WorkP50, &m.WorkP90, &m.WorkP99} {
		if quantiles[i] > 0 {
			*to = durationpb.New(time.Duration(quantiles[i]))
		}
	}
	return m
}
