package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	rotav1 "rota/api/gen/rota/v1"
	"rota/jepsen/hostile"
)

const (
	// commandMemory is what the command of each node may take.
	commandMemory = 64 << 20
	// commandTime ends a command that does not end by itself.
	commandTime = 3 * time.Second
	// politeTime bounds a call of the client library.
	politeTime = 15 * time.Second
)

// runCommands keeps one hostile command on each node. A trajectory keeps it there.
func (in *intruder) runCommands(ctx context.Context) {
	group := fmt.Sprintf("hostile-%d", time.Now().UnixNano())
	var nodes sync.WaitGroup
	for i := range in.Victims {
		nodes.Go(func() { in.occupy(ctx, group, i) })
	}
	nodes.Wait()
}

// occupy runs one mode after the other in a trajectory of its own.
func (in *intruder) occupy(ctx context.Context, group string, first int) {
	var trajectory uint64
	open := func() (err error) {
		call, cancel := context.WithTimeout(ctx, politeTime)
		defer cancel()
		resp, err := in.wire.api.Trajectories.OpenTrajectory(call, &rotav1.OpenTrajectoryRequest{
			Pool: in.Pool, MemoryBytes: commandMemory, SpreadGroup: group, SpreadLabel: in.Label,
		})
		trajectory = resp.GetTrajectory().GetId()
		return err
	}
	for n := 0; ctx.Err() == nil; n++ {
		if trajectory == 0 && open() != nil {
			continue
		}
		if err := in.runMode(ctx, trajectory, in.Modes[(first+n)%len(in.Modes)]); err != nil && ctx.Err() == nil {
			trajectory = 0 // it may be lost
		}
	}
	if trajectory != 0 {
		call, cancel := context.WithTimeout(context.WithoutCancel(ctx), politeTime)
		defer cancel()
		if _, err := in.wire.api.Trajectories.CloseTrajectory(call, &rotav1.CloseTrajectoryRequest{Id: trajectory}); err != nil {
			in.achieved("trajectory %d cannot be closed: %v", trajectory, err)
		}
	}
}

// runMode runs one command to its end and looks at what it says.
func (in *intruder) runMode(ctx context.Context, trajectory uint64, mode string) error {
	call, cancel := context.WithTimeout(ctx, politeTime)
	defer cancel()
	resp, err := in.wire.api.Actions.SubmitActions(call, &rotav1.SubmitActionsRequest{Actions: []*rotav1.ActionSpec{{
		Name: "hostile " + mode, TrajectoryId: trajectory, RunTimeout: durationpb.New(commandTime),
		Command:   &rotav1.Command{Argv: []string{in.Program, "command", mode}},
		Resources: &rotav1.Resources{Cores: proto.Uint32(1)},
	}}})
	if err != nil {
		return err
	}
	action, err := in.wire.api.Wait(call, resp.Ids[0])
	if err != nil {
		return err
	}
	r := action.GetResult()
	switch {
	case r.GetReason() == rotav1.EndReason_END_REASON_START_FAILED:
		return fmt.Errorf("it did not start: %s", r.Message)
	case r.GetReason() == rotav1.EndReason_END_REASON_EXITED && r.ExitCode == exitCannot:
		return fmt.Errorf("it could not try: %s", r.StderrTail)
	case r.GetReason() == rotav1.EndReason_END_REASON_EXITED && r.ExitCode == exitGot:
		in.achieved("the command %s on %s: %.300s", mode, action.Node, r.StdoutTail)
	}
	in.tried(hostile.Command(mode))
	return nil
}
