package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"
)

const submit = "ActionService/SubmitActions"

const (
	// bombsAtOnce are sent in parallel, one burst of them every bombsEvery.
	bombsAtOnce = 16
	bombsEvery  = time.Second
	// empties is how many messages of two bytes fit into what a server reads.
	empties = 2<<20 - 8
)

// bombs are small on the wire, or within its limit, and large if they are decoded.
func bombs(path string, field byte) []request {
	may := append([]string{"invalid_argument"}, overload...)
	many := bytes.Repeat([]byte{field<<3 | 2, 0}, empties)
	return []request{
		{kind: "bombs in gzip", path: path, format: protocol, zipped: true, body: zip(many), may: may},
		{kind: "large JSON", path: path, body: []byte(`{"actions":[{}` + strings.Repeat(",{}", 1<<20) + `]}`), may: may},
		{kind: "bombs in gzip", path: path, format: protocol, body: many[:200_000], may: may},
	}
}

func (in *intruder) throwBombs(ctx context.Context) { in.throw(ctx, bombs(submit, 4)) }

// throw sends bursts of the same bomb in parallel, each burst to one server.
func (in *intruder) throw(ctx context.Context, bombs []request) {
	every(ctx, bombsEvery, func(n int) {
		var all sync.WaitGroup
		for range bombsAtOnce {
			all.Go(func() { in.send(ctx, n, bombs[n%len(bombs)]) })
		}
		all.Wait()
	})
}

// action is a submission of one action as JSON. It fails: what succeeds has to be seen
// by the witness of the run.
func action(pool, id, more string, argv ...string) []byte {
	args, err := json.Marshal(argv)
	if err != nil {
		panic(err) // texts can always be written
	}
	return fmt.Appendf(nil, `{"requestId":%q,"actions":[{"pool":%q,"runTimeout":"2s","command":{"argv":%s}%s}]}`, id, pool, args, more)
}

// sendNonsense sends what is cut, too large, a replay, or full of control characters.
func (in *intruder) sendNonsense(ctx context.Context) {
	began := time.Now().UnixNano()
	id := func(n int) string { return fmt.Sprintf("hostile-%d-%d", began, n) }
	refused := append([]string{"invalid_argument"}, overload...)
	replayed := append([]string{"already_exists"}, overload...)
	ok := append([]string{"ok", "invalid_argument"}, overload...)
	garbage := []request{
		{kind: "malformed", path: submit, body: []byte(`{"actions":[`), may: refused},
		{kind: "malformed", path: submit, format: protocol, body: []byte("\x22\xff\xff\xff\xff\x0f"), may: refused},
		{kind: "malformed", path: submit, body: []byte(`{"actions":` + strings.Repeat("[", 100_000)), may: refused},
		{kind: "malformed", path: "ResidencyService/ExplainModel", body: []byte(`{"model":"owned","gpus":[3]}`), may: refused},
	}
	oversized := request{kind: "oversized", path: submit, body: []byte(`{"namespace":"` + strings.Repeat("x", 5<<20) + `"}`), may: refused}
	in.send(ctx, 0, request{kind: "replayed", path: submit, body: action(in.Pool, id(0), "", "false"), may: ok})
	every(ctx, 50*time.Millisecond, func(n int) {
		in.send(ctx, n, garbage[n%len(garbage)])
		switch n % 20 {
		case 10:
			in.send(ctx, n, oversized)
		case 0:
			in.send(ctx, n, request{kind: "replayed", path: submit, body: action(in.Pool, id(0), "", "false", "again"), may: replayed})
		case 5, 15:
			more := `,"name":"\u001b[2J\u001b]0;owned\u0007"`
			in.send(ctx, n, request{kind: "control characters", path: submit, body: action(in.Pool, id(n+1), more, "false", "\x1b[31m\r\x07"), may: ok})
		}
	})
}

// operate calls what is for operators, agents and servers.
func (in *intruder) operate(ctx context.Context) {
	may := append([]string{"permission_denied", "unauthenticated", "unimplemented", "http 403", "http 404"}, overload...)
	var calls []request
	for path, body := range map[string]string{
		"OperatorService/AddPeer":            `{"id":"server-9","address":"10.77.0.1:9","voter":true}`,
		"OperatorService/MovePeer":           `{"id":"server-1","address":"10.77.0.1:9"}`,
		"OperatorService/RemovePeer":         `{"id":"server-1"}`,
		"OperatorService/TransferLeadership": `{}`,
		"OperatorService/TakeSnapshot":       `{}`,
		"OperatorService/SaveSnapshot":       `{}`,
		"OperatorService/StageRestore":       `{"id":"owned","data":"AA=="}`,
		"OperatorService/CommitRestore":      `{"id":"owned","parts":1,"force":true}`,
		"OperatorService/CreateNamespace":    `{"name":"owned"}`,
		"OperatorService/UpdateNamespace":    `{"name":"default","weight":1000}`,
		"OperatorService/DeleteNamespace":    `{"name":"default"}`,
		"OperatorService/DeletePool":         `{"name":"default"}`,
		"OperatorService/ResumePool":         `{"name":"default"}`,
		"OperatorService/RaiseLevel":         `{"level":99}`,
		"NodeService/DrainNode":              `{"name":"` + in.Victims[0] + `"}`,
		"NodeService/RemoveNode":             `{"name":"` + in.Victims[0] + `"}`,
		"NodeService/DisableGpus":            `{"name":"` + in.Victims[0] + `","gpus":[0],"reason":"owned"}`,
		"QuotaService/CreateQuota":           `{"name":"owned","limit":1}`,
		"LedgerService/CreateNodeGroup":      `{"name":"owned"}`,
		"LedgerService/SetNodeGroupMembers":  `{"name":"owned","members":[{"node":"n1"}]}`,
		"EngineService/RegisterEngine":       `{"engine":{"model":"owned","driver":"ENGINE_DRIVER_PROCESS","noProbe":true,"command":{"argv":["false"]}}}`,
		"AgentService/RegisterNode":          `{"name":"` + in.Victims[0] + `"}`,
		"AgentService/ReportMigrations":      `{"name":"` + in.Victims[0] + `","incarnation":"1","reports":[{"migrationId":"1","done":true}]}`,
		"/peer.v1.PeerService/Propose":       `{"commands":[{"tick":{}}]}`,
	} {
		calls = append(calls, request{kind: "calls of other roles", path: path, body: []byte(body), may: may})
	}
	every(ctx, 50*time.Millisecond, func(n int) { in.send(ctx, n/len(calls), calls[n%len(calls)]) })
}

// starve asks for less memory than a process needs to start.
func (in *intruder) starve(ctx context.Context) {
	may := append([]string{"invalid_argument"}, overload...)
	every(ctx, 100*time.Millisecond, func(n int) {
		more := fmt.Sprintf(`{"actions":[{"pool":%q,"resources":{"memoryBytes":"%d"},"command":{"argv":["true"]}}]}`, in.Pool, 1+n*37%4095)
		in.send(ctx, n, request{kind: "too little memory", path: submit, body: []byte(more), may: may})
	})
}

// climb names directories inside the folders of supervisors, which no client may make.
func (in *intruder) climb(ctx context.Context) {
	began := time.Now().UnixNano()
	may := append([]string{"ok", "invalid_argument"}, overload...)
	every(ctx, 300*time.Millisecond, func(n int) {
		dir := in.Forbidden[n%len(in.Forbidden)]
		body := fmt.Appendf(nil, `{"requestId":"climb-%d-%d","actions":[{"pool":%q,"runTimeout":"2s","command":{"argv":["false"],"dir":%q}}]}`,
			began, n, in.Pool, dir)
		in.send(ctx, n, request{kind: "directories of the supervisor", path: submit, body: body, may: may})
	})
}
