package rpc

import (
	"context"
	"errors"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"rota/api/rights"
	"rota/fsm/state"
)

// authorize returns why a call may not be made with this request, nil if it may.
//
// A request that names something by its ID belongs to the namespace of that. A caller with rights
// in some namespaces only is told of an ID that does not exist here, though the server has caught
// up, that it does not exist: else it could be created, in another namespace, between this look
// and what the call does.
func (s *Server) authorize(ctx context.Context, procedure string, req proto.Message) error {
	need, known := requiredRights[procedure]
	c := callerOf(ctx)
	if !known || c == nil || need.self || c.kind == byNothing && s.allowedLocally(procedure, need) {
		return nil
	}
	if c.kind != byCertificate && need.verb == rights.Operate {
		// Some of these are no commands of the log, which would check the token once more.
		if err := s.catchUp(ctx, false); err != nil {
			return err
		}
		if f := s.resolve(c); f != nil {
			return f
		}
	}
	if c.may.Allows(need.noun, need.verb, "") {
		return nil
	}
	namespaces, found := s.namespacesOf(need, req)
	if !found {
		if err := s.catchUp(ctx, false); err != nil {
			return err
		}
		if namespaces, found = s.namespacesOf(need, req); !found {
			return notFound("NOT_FOUND", "what the call is about does not exist, or ended too long ago to be kept")
		}
	}
	if len(namespaces) == 0 {
		if need.listed != "" && c.may.AllowsSomewhere(need.noun, need.verb) {
			return nil // the answer is filtered
		}
		return rightMissing(c, need, "")
	}
	for _, ns := range namespaces {
		if !c.may.Allows(need.noun, need.verb, ns) {
			return rightMissing(c, need, ns)
		}
	}
	return nil
}

func (s *Server) namespacesOf(need right, req proto.Message) (namespaces []string, found bool) {
	s.Machine.View(func(st *state.State) { namespaces, found = need.place(st, req.ProtoReflect()) })
	return namespaces, found
}

// guardedStream checks the request of a stream when it arrives, and the caller's rights with
// each answer: a token that is revoked gets nothing more.
type guardedStream struct {
	connect.StreamingHandlerConn
	ctx  context.Context
	s    *Server
	need right
}

// Receive refuses a request that the caller may not make.
func (g *guardedStream) Receive(msg any) error {
	if err := g.StreamingHandlerConn.Receive(msg); err != nil {
		return err
	}
	req, ok := msg.(proto.Message)
	if !ok {
		return errors.New("the request is no message")
	}
	callOf(g.ctx).about(req)
	return g.s.authorize(g.ctx, g.Spec().Procedure, req)
}

// Send leaves out what the caller may not read.
func (g *guardedStream) Send(msg any) error {
	c := callerOf(g.ctx)
	if g.need.place == nil { // a stream of agents, or health: its path was checked
		return g.StreamingHandlerConn.Send(msg)
	}
	if c == nil || c.kind == byCertificate && c.may.Allows(g.need.noun, g.need.verb, "") || c.kind == byNothing {
		return g.StreamingHandlerConn.Send(msg)
	}
	now := *c
	if f := g.s.resolve(&now); f != nil {
		return f
	}
	if !now.may.AllowsSomewhere(g.need.noun, g.need.verb) {
		return rightMissing(&now, g.need, "")
	}
	if answer, ok := msg.(proto.Message); ok {
		g.need.leaveOut(answer, now.may)
	}
	return g.StreamingHandlerConn.Send(msg)
}
