package rpc

import (
	"context"
	"fmt"

	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
)

// catchUp makes reads that follow linearizable: they see everything that was
// acknowledged by any server before the call. With stale true it does nothing.
func (s *Server) catchUp(ctx context.Context, stale bool) error {
	if stale {
		return nil
	}
	if err := s.checkLeader(); err != nil {
		return err
	}
	index, err := s.Replica.ReadIndex(ctx)
	if err != nil {
		return err
	}
	return s.Machine.WaitApplied(ctx, index)
}

// catchUpForCall is catchUp for a call that is no command of the log: the log would check the caller's
// token once more.
func (s *Server) catchUpForCall(ctx context.Context, stale bool) error {
	if err := s.catchUp(ctx, stale); err != nil {
		return err
	}
	_, err := s.stillAllowed(ctx)
	return err
}

// propose commits one command. A refusal is an error.
func (s *Server) propose(ctx context.Context, command *logv1.Command) (*logv1.Result, error) {
	if err := s.checkLeader(); err != nil {
		return nil, err
	}
	results, err := s.proposeAll(ctx, command)
	if err != nil {
		return nil, err
	}
	if r := results[0].Refusal; r != nil {
		return nil, s.untilRoom(refused(r))
	}
	return results[0], nil
}

// proposeAll commits commands in the name of the caller: if that is a token, they are refused if
// it is not valid any more when they are applied.
func (s *Server) proposeAll(ctx context.Context, commands ...*logv1.Command) ([]*logv1.Result, error) {
	if c := callerOf(ctx); c != nil && c.kind == byToken {
		for _, command := range commands {
			command.Token = c.name
		}
	}
	results, err := s.Replica.Propose(ctx, commands...)
	if err != nil {
		return nil, err
	}
	if len(results) != len(commands) {
		return nil, fmt.Errorf("%d commands have %d results", len(commands), len(results))
	}
	if len(results) > 0 {
		callOf(ctx).applied(results[0].Index)
	}
	return results, nil
}

// change commits one command and waits until this server's own state has it, so
// that the answer can be read from there.
func (s *Server) change(ctx context.Context, command *logv1.Command) (*logv1.Result, error) {
	result, err := s.propose(ctx, command)
	if err != nil {
		return nil, err
	}
	return result, s.Machine.WaitApplied(ctx, result.Index)
}

// namespaceID finds a namespace by its name.
func namespaceID(st *state.State, name string) (state.NamespaceID, error) {
	n := st.NamespaceByName(orDefault(name))
	if n == nil {
		return 0, notFound("NAMESPACE_NOT_FOUND", "there is no namespace %q: create it with CreateNamespace, or correct the name", orDefault(name))
	}
	return n.ID, nil
}
