package rpc

import (
	"context"
	"errors"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

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
	c := callerOf(ctx)
	need, checked := s.rightOf(c, procedure)
	if !checked {
		return nil
	}
	// Some calls of operators are no commands of the log, which would check the token once more.
	catchUpFirst := c.kind != byCertificate && need.verb == rights.Operate
	if !catchUpFirst && !c.may.Allows(need.noun, need.verb, "") {
		_, found := s.namespacesOf(need, req)
		catchUpFirst = need.renamed || !found
	}
	if catchUpFirst {
		if err := s.catchUp(ctx, false); err != nil {
			return err
		}
		if f := s.resolve(c); f != nil {
			return f
		}
	}
	if f := s.allowed(c, need, req); f != nil {
		return f
	}
	return nil
}

// rightOf returns the right that a call needs, and whether its caller has to have it.
func (s *Server) rightOf(c *caller, procedure string) (need right, checked bool) {
	need, known := requiredRights[procedure]
	return need, known && c != nil && !need.self && !(c.kind == byNothing && s.allowedLocally(procedure, need))
}

// allowed returns why a caller may not make a call by this server's state as it is, nil if it may.
func (s *Server) allowed(c *caller, need right, req proto.Message) *failure {
	if c.may.Allows(need.noun, need.verb, "") {
		return nil
	}
	namespaces, found := s.namespacesOf(need, req)
	if !found {
		return notFound("NOT_FOUND", "what the call is about does not exist, or ended too long ago to be kept")
	}
	if len(namespaces) == 0 {
		if need.listed != "" && c.may.AllowsSomewhere(need.noun, need.verb) {
			return nil // the answer is filtered
		}
		return rightMissing(c, need, "")
	}
	for _, ns := range namespaces {
		if !c.may.Allows(need.noun, need.verb, ns) {
			return rightMissing(c, need, told(req.ProtoReflect(), ns))
		}
	}
	return nil
}

// stillAllowed returns what the caller of a unary call may do by this server's state as it is now, and
// why the call is refused by now: the server may have been behind when the call came.
func (s *Server) stillAllowed(ctx context.Context) (rights.Set, error) {
	c, noted := callerOf(ctx), callOf(ctx)
	if c == nil || noted.request == nil {
		return rights.Set{}, nil
	}
	now := *c
	if f := s.resolve(&now); f != nil {
		return now.may, f
	}
	if need, checked := s.rightOf(&now, noted.procedure); checked {
		if f := s.allowed(&now, need, noted.request); f != nil {
			return now.may, f
		}
	}
	return now.may, nil
}

// told is a namespace as far as the caller named it: of what was named by its ID, it is not told.
func told(req protoreflect.Message, namespace string) string {
	if field(req, "requests") != nil || field(req, "namespace") != nil && orDefault(text(req, "namespace")) == namespace {
		return namespace
	}
	return ""
}

func (s *Server) namespacesOf(need right, req proto.Message) (namespaces []string, found bool) {
	s.Machine.View(func(st *state.State) { namespaces, found = need.place(st, req.ProtoReflect()) })
	return namespaces, found
}

// recheckPeriod is how often the rights to a stream are looked at while nothing is sent.
const recheckPeriod = time.Second

// guardedStream checks the request of a stream when it arrives, and the caller's rights from then
// on: with each answer, as a token that is revoked gets nothing more, and in between, as a stream on
// which nothing happens ends, too.
type guardedStream struct {
	connect.StreamingHandlerConn
	ctx  context.Context
	s    *Server
	need right
	// end ends the call.
	end context.CancelCauseFunc
	// namespaces are those that the request is about, as found when it came.
	namespaces []string
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
	if err := g.s.authorize(g.ctx, g.Spec().Procedure, req); err != nil {
		return err
	}
	if g.need.place != nil && callerOf(g.ctx) != nil {
		g.namespaces, _ = g.s.namespacesOf(g.need, req)
		g.recheck()
	}
	return nil
}

// recheck ends the stream once its caller may not have it any more.
func (g *guardedStream) recheck() {
	time.AfterFunc(recheckPeriod, func() {
		if g.ctx.Err() != nil {
			return
		}
		if _, f := g.mayGoOn(); f != nil {
			g.end(f)
			return
		}
		g.recheck()
	})
}

// mayGoOn returns what the caller may do now, and why the stream must end; nil if it may go on.
func (g *guardedStream) mayGoOn() (rights.Set, *failure) {
	c := callerOf(g.ctx)
	now := *c
	if f := g.s.resolve(&now); f != nil {
		return now.may, f
	}
	if now.may.Allows(g.need.noun, g.need.verb, "") {
		return now.may, nil
	}
	if len(g.namespaces) == 0 && !now.may.AllowsSomewhere(g.need.noun, g.need.verb) {
		return now.may, rightMissing(&now, g.need, "")
	}
	for _, ns := range g.namespaces {
		if !now.may.Allows(g.need.noun, g.need.verb, ns) {
			return now.may, rightMissing(&now, g.need, ns)
		}
	}
	return now.may, nil
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
	may, f := g.mayGoOn()
	if f != nil {
		return f
	}
	if answer, ok := msg.(proto.Message); ok {
		g.need.leaveOut(answer, may)
	}
	return g.StreamingHandlerConn.Send(msg)
}
