package hostile

import (
	"encoding/base64"
	"fmt"
	"strings"
)

// streams are calls that reach for what runs: what is too large, unknown, or not there.
func (s *scene) streams() []request {
	of := func(action uint64, more string) string { return fmt.Sprintf(`{"actionId":"%d"%s}`, action, more) }
	bytes := func(n int) string { return base64.StdEncoding.EncodeToString([]byte(strings.Repeat("x", n))) }
	const input, signal, resize = "StreamService/WriteActionInput", "StreamService/SignalAction", "StreamService/ResizeActionTerminal"
	action := func(more string) string { return `{"actions":[{"command":{"argv":["true"]},` + more + `}]}` }
	return []request{
		{name: "input of nothing", path: input, body: `{}`, code: "invalid_argument", says: "action_id"},
		{name: "input of an action that never was", path: input, body: of(s.absent, ""), code: "not_found"},
		{name: "input of an action that waits", path: input, body: of(s.queued, ""), code: "unavailable", says: "ACTION_QUEUED"},
		{name: "input of an action that has ended", path: input, body: of(s.ended, ""), code: "failed_precondition", says: "ATTEMPT_ENDED"},
		{name: "input of an action without any", path: input, body: of(s.running, `,"data":"eA=="`), code: "failed_precondition", says: "NO_STREAM"},
		{name: "input of an attempt of the future", path: input, body: of(s.running, `,"attempt":4294967295`), code: "not_found", says: "ATTEMPT_NOT_FOUND"},
		{name: "too much input", path: input, body: of(s.running, `,"data":"`+bytes(64<<10+1)+`"`), code: "invalid_argument", says: "data"},
		{name: "far too much input", path: input, body: of(s.running, `,"data":"`+bytes(8<<20)+`"`), code: "resource_exhausted"},
		{name: "a writer with a long name", path: input, body: of(s.running, `,"writer":"`+strings.Repeat("w", 65)+`"`), code: "invalid_argument", says: "writer"},
		{name: "an offset out of range", path: input, body: of(s.running, `,"offset":"18446744073709551615"`), code: "invalid_argument", says: "offset"},
		{name: "a wait of centuries", path: input, body: of(s.running, `,"wait":"300000000s"`), code: "invalid_argument", says: "wait"},
		{name: "a negative wait", path: input, body: of(s.running, `,"wait":"-1s"`), code: "invalid_argument", says: "wait"},
		{name: "no signal", path: signal, body: of(s.running, ""), code: "invalid_argument", says: "signal"},
		{name: "a signal that may not be sent", path: signal, body: of(s.running, `,"signal":"SEGV"`), code: "invalid_argument", says: "SEGV"},
		{name: "a number of no signal", path: signal, body: of(s.running, `,"signal":"-9"`), code: "invalid_argument", says: "signal"},
		{name: "a signal with a long name", path: signal, body: of(s.running, `,"signal":"`+strings.Repeat("9", 100000)+`"`), code: "invalid_argument", says: "signal"},
		{name: "a signal to an action that has ended", path: signal, body: of(s.ended, `,"signal":"INT"`), code: "failed_precondition"},
		{name: "no size", path: resize, body: of(s.running, ""), code: "invalid_argument", says: "size"},
		{name: "a terminal without rows", path: resize, body: of(s.running, `,"size":{"columns":80}`), code: "invalid_argument", says: "rows"},
		{name: "a terminal that is too large", path: resize, body: of(s.running, `,"size":{"rows":4294967295,"columns":80}`), code: "invalid_argument", says: "rows"},
		{name: "the size of no terminal", path: resize, body: of(s.running, `,"size":{"rows":24,"columns":80}`), code: "failed_precondition", says: "NO_STREAM"},
		{name: "an action with a terminal without rows", path: submitPath, body: action(`"tty":{"columns":80}`), code: "invalid_argument", says: "tty"},
		{name: "an action with a huge terminal", path: submitPath, body: action(`"tty":{"rows":24,"columns":4097}`), code: "invalid_argument", says: "tty"},
		{name: "a call with a terminal", path: submitPath, body: `{"actions":[{"http":{"url":"http://127.0.0.1/"},"tty":{"rows":24,"columns":80}}]}`,
			code: "invalid_argument", says: "stdin"},
	}
}
