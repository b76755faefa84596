package agent

import (
	"context"
	"errors"

	"rota/agent/runtime"
)

// nothing is the runtime of a node that runs nothing: every attempt is refused
// before it gets here.
type nothing struct{ exits chan runtime.Exit }

var errNothing = errors.New("agent: this node runs nothing")

func newNothing() *nothing { return &nothing{exits: make(chan runtime.Exit)} }

func (n *nothing) Start(context.Context, runtime.Spec) error               { return errNothing }
func (n *nothing) Kill(context.Context, runtime.Key, runtime.Reason) error { return nil }
func (n *nothing) List(context.Context) ([]runtime.Key, []runtime.Exit, error) {
	return nil, nil, nil
}
func (n *nothing) Exits() <-chan runtime.Exit                  { return n.exits }
func (n *nothing) Forget(context.Context, []runtime.Key) error { return nil }
func (n *nothing) SetDeadline(context.Context, int64) error    { return nil }
func (n *nothing) Describe() runtime.Description               { return runtime.Description{Mode: "process"} }
func (n *nothing) Stop(context.Context) error                  { return nil }
func (n *nothing) Close() error                                { return nil }
