package agent

import (
	"context"
	"errors"

	"rota/agent/plan"
	"rota/agent/runtime"
)

// nothing is the runtime of a node that runs nothing: every attempt is refused
// before it gets here.
type nothing struct{ exits chan plan.Exit }

var errNothing = errors.New("agent: this node runs nothing")

func newNothing() *nothing { return &nothing{exits: make(chan plan.Exit)} }

func (n *nothing) Start(context.Context, runtime.Spec) error         { return errNothing }
func (n *nothing) Resize(context.Context, plan.Key, []int) error     { return errNothing }
func (n *nothing) Freeze(context.Context, plan.Key, bool) error      { return errNothing }
func (n *nothing) Kill(context.Context, plan.Key, plan.Reason) error { return nil }
func (n *nothing) WriteInput(context.Context, plan.Key, runtime.Input) (runtime.InputState, error) {
	return runtime.InputState{}, runtime.ErrNotRunning
}
func (n *nothing) Signal(context.Context, plan.Key, runtime.Signal) error {
	return runtime.ErrNotRunning
}
func (n *nothing) ResizeTerminal(context.Context, plan.Key, runtime.Terminal) error {
	return runtime.ErrNotRunning
}
func (n *nothing) List(context.Context) ([]plan.Running, []plan.Exit, error) {
	return nil, nil, nil
}
func (n *nothing) Exits() <-chan plan.Exit                                { return n.exits }
func (n *nothing) Forget(context.Context, []plan.Key) error               { return nil }
func (n *nothing) KeepTrajectories(context.Context, []uint64) error       { return nil }
func (n *nothing) Measure(context.Context, uint64) ([]runtime.Use, error) { return nil, errNothing }
func (n *nothing) MakeTrajectory(context.Context, uint64) (int, error)    { return 0, errNothing }
func (n *nothing) SetDeadline(context.Context, int64) error               { return nil }
func (n *nothing) Describe() runtime.Description                          { return runtime.Description{Mode: "process"} }
func (n *nothing) Stop(context.Context) error                             { return nil }
func (n *nothing) Close() error                                           { return nil }
