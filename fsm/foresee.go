package fsm

import (
	"fmt"

	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
)

// Foresee returns the state that an entry with some commands would leave of a copy of the
// state, at the copy's own log time, and the results of the commands. Neither the copy nor the
// machine changes. So servers can say what would become of an action that comes now: the
// scheduler itself decides. A broken invariant is an error, and stops nothing.
func (m *Machine) Foresee(s *state.State, commands ...*logv1.Command) (after *state.State, results []*logv1.Result, err error) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case *state.Corruption:
			err = fmt.Errorf("foresee %d commands: %w", len(commands), r)
		case *state.Beyond:
			err = fmt.Errorf("foresee %d commands: %w", len(commands), r)
		default:
			panic(r)
		}
	}()
	e := &logv1.Entry{TimeNs: s.Meta().Now, Commands: commands}
	after, results, _ = apply(s.Apart().Copy, s.Meta().Applied+1, e, m.opts.Deciders, nil)
	return after, results, nil
}
