package hostile

import (
	"fmt"
	"math"
	"strings"
)

const (
	submitPath   = "ActionService/SubmitActions"
	registerPath = "AgentService/RegisterNode"
	reportPath   = "AgentService/ReportAttempts"
	diskPath     = "AgentService/ReportDisk"
	watchPath    = "AgentService/WatchNode"

	connectJSON = "application/connect+json"
)

func (s *scene) malformed() []request {
	const path = submitPath
	return []request{
		{name: "cut JSON", path: path, body: `{"actions":[`, code: "invalid_argument"},
		{name: "JSON of another type", path: path, body: `{"actions":5}`, code: "invalid_argument"},
		{name: "JSON with a field that does not exist", path: path, body: `{"acts":[]}`, code: "invalid_argument", says: "acts"},
		{name: "more than one JSON value", path: path, body: `{"actions":[{"command":{"argv":["true"]}}]} {}`, code: "invalid_argument"},
		{name: "number out of range", path: path, body: `{"actions":[{"command":{"argv":["true"]},"resources":{"cores":-1}}]}`, code: "invalid_argument"},
		{name: "deep JSON", path: path, body: `{"actions":` + strings.Repeat("[", 100_000), code: "invalid_argument"},
		{name: "nothing", path: path, code: "invalid_argument", says: "empty"},
		{name: "no protocol buffer", path: path, contentType: "application/proto", body: "\xff\xff\xff\xff", code: "invalid_argument"},
		{name: "length beyond the end", path: path, contentType: "application/proto", body: "\x22\xff\xff\xff\xff\x0f", code: "invalid_argument"},
		{name: "a field of the future", path: path, contentType: "application/proto",
			body: field(4, field(4, field(1, "true"))+field(9999, "x")), code: "invalid_argument"},
		{name: "text that is no UTF-8", path: path, contentType: "application/proto",
			body: field(4, field(4, field(1, "true\xff"))), code: "invalid_argument", says: "UTF-8"},
		{name: "not zipped", path: path, body: "{}", header: map[string]string{"Content-Encoding": "gzip"}, code: "invalid_argument"},
		{name: "an unknown compression", path: path, body: "{}", header: map[string]string{"Content-Encoding": "rot13"}, code: "unimplemented"},
		{name: "an unknown protocol version", path: path, body: "{}", header: map[string]string{"Connect-Protocol-Version": "99"}, code: "invalid_argument"},
		{name: "a timeout that is none", path: path, body: "{}", header: map[string]string{"Connect-Timeout-Ms": "soon"}, code: "invalid_argument"},
		{name: "no stream", path: watchPath, contentType: connectJSON, body: "{}", code: "internal", says: "protocol error"},
		{name: "cut stream", path: watchPath, contentType: connectJSON, body: envelope(`{"name":"node-1"}`)[:9], code: "internal", says: "protocol error"},
	}
}

func (s *scene) oversized() []request {
	const path = submitPath
	spec := func(n int) string {
		return `{"actions":[{"command":{"argv":["true","` + strings.Repeat("x", n) + `"]}}]}`
	}
	return []request{
		{name: "spec above 64 KiB", path: path, body: spec(64 << 10), code: "invalid_argument", says: "actions[0]"},
		{name: "request above 4 MiB", path: path, body: spec(4 << 20), code: "resource_exhausted"},
		{name: "request above 4 MiB when unzipped", path: path, body: strings.Repeat(zipped(make([]byte, 1<<20)), 64),
			header: map[string]string{"Content-Encoding": "gzip"}, code: "resource_exhausted"},
		{name: "stream message above 4 MiB", path: watchPath, contentType: connectJSON, body: envelope(spec(4 << 20)), code: "resource_exhausted"},
		{name: "too many actions", path: path, body: `{"actions":[` + strings.Repeat(`{},`, 4096) + `{}]}`, code: "invalid_argument", says: "4096"},
		{name: "request ID", path: path, body: `{"requestId":"` + strings.Repeat("x", 65) + `","actions":[{"command":{"argv":["true"]}}]}`,
			code: "invalid_argument", says: "64"},
		{name: "header", path: path, body: spec(1), header: map[string]string{"X-Bomb": strings.Repeat("x", 80<<10)}, code: "http 431"},
		{name: "too many reports", path: reportPath, body: fmt.Sprintf(`{"name":"node-1","incarnation":"%d","reports":[%s{}]}`,
			s.node.Incarnation, strings.Repeat(`{},`, 1024)), code: "invalid_argument", says: "1024"},
	}
}

func (s *scene) unknown() []request {
	action := func(spec string) string { return `{"actions":[{"command":{"argv":["true"]},` + spec + `}]}` }
	return []request{
		{name: "method", path: "ActionService/Explode", body: "{}", code: "http 404"},
		{name: "service", path: "/rota.v9.ActionService/SubmitActions", body: "{}", code: "http 404"},
		{name: "content type", path: submitPath, contentType: "text/plain", body: "{}", code: "http 415"},
		{name: "HTTP method", path: submitPath, method: "PUT", body: "{}", code: "http 405"},
		{name: "namespace", path: submitPath, body: `{"namespace":"nobodys","actions":[{"command":{"argv":["true"]}}]}`, code: "not_found", says: "nobodys"},
		{name: "pool", path: submitPath, body: action(`"pool":"dry"`), code: "not_found", says: "dry"},
		{name: "trajectory", path: submitPath, body: action(`"trajectoryId":"999"`), code: "not_found", says: "999"},
		{name: "trajectory to close", path: "TrajectoryService/CloseTrajectory", body: `{"id":"999"}`, code: "not_found", says: "999"},
		{name: "action", path: "ActionService/GetAction", body: fmt.Sprintf(`{"id":"%d"}`, s.absent), code: "not_found"},
		{name: "action to cancel", path: "ActionService/CancelActions", body: fmt.Sprintf(`{"ids":["%d"]}`, s.absent), code: "not_found"},
		{name: "ended action to cancel", path: "ActionService/CancelActions", body: fmt.Sprintf(`{"ids":["%d"]}`, s.ended), code: "ok"},
		{name: "page", path: "ActionService/ListActions", body: `{"pageToken":"not-from-here"}`, code: "invalid_argument"},
		{name: "page of the residency table", path: "ResidencyService/ListResidency", body: `{"pageToken":"not-from-here"}`, code: "invalid_argument"},
		{name: "half a row", path: "ResidencyService/GetResidency", body: `{"workingSet":"m","node":"n"}`, code: "invalid_argument", says: "chunk"},
		{name: "model", path: "ResidencyService/GetModel", body: `{"model":"nobodys"}`, code: "not_found", says: "nobodys"},
		{name: "three GPUs for a model", path: "ResidencyService/ExplainModel", body: `{"model":"m","gpus":[3]}`, code: "invalid_argument", says: "1, 2, 4 and 8"},
		{name: "GPUs of a pool", path: "ResidencyService/ListGpus", body: `{"pool":"nobodys"}`, code: "not_found"},
		{name: "revision of the future", path: "ActionService/WatchActions", contentType: connectJSON,
			body: envelope(fmt.Sprintf(`{"afterRevision":"%d"}`, uint64(math.MaxInt64))), code: "out_of_range"},
		{name: "output", path: "ActionService/ReadActionOutput", contentType: connectJSON,
			body: envelope(fmt.Sprintf(`{"actionId":"%d","attempt":1}`, s.absent)), code: "not_found"},
	}
}

func (s *scene) invalid() []request {
	action := func(spec string) string { return `{"actions":[{"command":{"argv":["true"]},` + spec + `}]}` }
	refused := func(name, body, says string) request {
		return request{name: name, path: submitPath, body: body, code: "invalid_argument", says: says}
	}
	return []request{
		refused("no actions", `{}`, "actions"),
		refused("empty action", `{"actions":[{}]}`, "actions[0]"),
		refused("no argv", `{"actions":[{"command":{}}]}`, "argv"),
		refused("one of two is invalid", `{"actions":[{"command":{"argv":["true"]}},{}]}`, "actions[1]"),
		refused("a NUL byte", `{"actions":[{"command":{"argv":["tr\u0000ue"]}}]}`, "NUL"),
		refused("more cores than there can be", action(`"resources":{"cores":4294967295}`), "cores"),
		refused("more cores than there are", action(`"resources":{"cores":500}`), "500"),
		refused("fewer cores at most than at least", action(`"resources":{"cores":2,"maxCores":1}`), "cores"),
		refused("more memory than there can be", action(`"resources":{"memoryBytes":"18446744073709551615"}`), "memory"),
		refused("negative timeout", action(`"runTimeout":"-5s"`), "run_timeout"),
		refused("timeout of centuries", action(`"queueTimeout":"300000000000s"`), "queue_timeout"),
		refused("too many attempts", action(`"lossPolicy":"LOSS_POLICY_RETRY","maxAttempts":101`), "attempts"),
		refused("an unknown policy", action(`"lossPolicy":77`), "loss_policy"),
		refused("trajectory and pool", action(fmt.Sprintf(`"trajectoryId":"%d","pool":"default"`, s.trajectory)), "pool"),
		refused("more memory than the trajectory has", action(fmt.Sprintf(`"trajectoryId":"%d","resources":{"memoryBytes":"2097152"}`, s.trajectory)), "memory"),
		{name: "trajectory without end", path: "TrajectoryService/OpenTrajectory", body: `{"memoryBytes":"18446744073709551615"}`, code: "invalid_argument"},
		{name: "spread over nothing", path: "TrajectoryService/OpenTrajectory", body: `{"spreadGroup":"g"}`, code: "invalid_argument", says: "spread_label"},
		{name: "nobody to be spread from", path: "TrajectoryService/OpenTrajectory", body: `{"spreadLabel":"zone"}`, code: "invalid_argument", says: "spread_group"},
		{name: "empty batch", path: "ActionService/BatchSubmitActions", body: `{}`, code: "invalid_argument"},
		{name: "batch of nothing but errors", path: "ActionService/BatchSubmitActions", body: `{"requests":[{},{"namespace":"nobodys","actions":[{"command":{"argv":["true"]}}]}]}`,
			code: "ok", says: "NAMESPACE_NOT_FOUND"},
	}
}

func (s *scene) replayed() []request {
	action := func(id, more string, argv string) string {
		return fmt.Sprintf(`{"requestId":"%s","actions":[{"command":{"argv":["%s"]},"resources":{"cores":1}}]%s}`, id, argv, more)
	}
	return []request{
		{name: "the same again", path: submitPath, body: action("first", "", "true"), code: "ok", says: `"replayed":true`},
		{name: "another command", path: submitPath, body: action("first", "", "false"), code: "already_exists", says: "REQUEST_MISMATCH"},
		{name: "another number of actions", path: submitPath,
			body: `{"requestId":"first","actions":[{"command":{"argv":["true"]}},{"command":{"argv":["true"]}}]}`, code: "already_exists"},
		{name: "the ID of another verb", path: "TrajectoryService/OpenTrajectory", body: `{"requestId":"first","memoryBytes":"1048576"}`, code: "already_exists"},
		{name: "expired", path: submitPath, body: action("old", `,"expireTime":"2001-01-01T00:00:00Z"`, "true"), code: "deadline_exceeded"},
		{name: "expired replay", path: submitPath, body: action("first", `,"expireTime":"2001-01-01T00:00:00Z"`, "true"), code: "deadline_exceeded"},
		{name: "remembered for ever", path: submitPath, body: action("new", `,"expireTime":"2999-01-01T00:00:00Z"`, "true"), code: "invalid_argument"},
		{name: "time out of range", path: submitPath, body: action("new", `,"expireTime":"0001-01-01T00:00:00Z"`, "true"), code: "invalid_argument"},
	}
}

func (s *scene) agent() []request {
	register := func(more string) string {
		return `{"name":"node-9","address":"127.0.0.1:1","journalId":"j","memoryBytes":"1073741824","numaNodes":[{"cpus":[0]}]` + more + `}`
	}
	report := func(node string, incarnation, action uint64, attempt int) string {
		return fmt.Sprintf(`{"name":"%s","incarnation":"%d","reports":[{"actionId":"%d","attempt":%d,"result":{"reason":"END_REASON_EXITED"}}]}`,
			node, incarnation, action, attempt)
	}
	watch := func(node string, incarnation, index uint64) string {
		return envelope(fmt.Sprintf(`{"name":"%s","incarnation":"%d","minIndex":"%d"}`, node, incarnation, index))
	}
	lease := func(node string, incarnation uint64) string {
		return fmt.Sprintf(`{"name":"%s","incarnation":"%d"}`, node, incarnation)
	}
	now := s.node.Incarnation
	const renew = "AgentService/RenewLease"
	return []request{
		{name: "registration of nobody", path: registerPath, body: `{}`, code: "invalid_argument", says: "name"},
		{name: "name with a slash", path: registerPath, body: strings.Replace(register(""), "node-9", "../x", 1), code: "invalid_argument"},
		{name: "bad pool", path: registerPath, body: register(`,"pool":"a b"`), code: "invalid_argument", says: "pool"},
		{name: "CPU out of range", path: registerPath, body: strings.Replace(register(""), "[0]", "[100000]", 1), code: "invalid_argument", says: "100000"},
		{name: "CPU twice", path: registerPath, body: strings.Replace(register(""), "[0]", "[0,0]", 1), code: "invalid_argument", says: "CPU 0"},
		{name: "no memory", path: registerPath, body: strings.Replace(register(""), "1073741824", "0", 1), code: "invalid_argument", says: "memory"},
		{name: "no address", path: registerPath, body: strings.Replace(register(""), "127.0.0.1:1", "nowhere", 1), code: "invalid_argument", says: "address"},
		{name: "name of another agent", path: registerPath, body: strings.Replace(register(`,"pool":"stolen"`), "node-9", "node-1", 1),
			code: "failed_precondition", says: "NODE_NAME_TAKEN"},
		{name: "lease of an unknown node", path: renew, body: lease("node-9", 1), code: "ok", says: `"fenced":true`},
		{name: "lease of an old incarnation", path: renew, body: lease("node-1", now+7), code: "ok", says: `"fenced":true`},
		{name: "lease without incarnation", path: renew, body: lease("node-1", 0), code: "invalid_argument", says: "incarnation"},
		{name: "disk of an unknown node", path: diskPath, body: lease("node-9", 1), code: "ok"},
		{name: "disk of an old incarnation", path: diskPath, body: lease("node-1", now+7), code: "ok"},
		{name: "disk without incarnation", path: diskPath, body: lease("node-1", 0), code: "invalid_argument", says: "incarnation"},
		{name: "stream of an unknown node", path: watchPath, contentType: connectJSON, body: watch("node-9", 1, 0), code: "ok", says: `"fenced":true`},
		{name: "stream of another incarnation", path: watchPath, contentType: connectJSON, body: watch("node-1", now+7, 0), code: "ok", says: `"fenced":true`},
		{name: "stream from the future", path: watchPath, contentType: connectJSON, body: watch("node-1", now, 1<<62), code: "unavailable", says: "BEHIND"},
		{name: "report of an unknown node", path: reportPath, body: report("node-9", 1, s.running, 1), code: "not_found", says: "node-9"},
		{name: "report of another incarnation", path: reportPath, body: report("node-1", now+7, s.running, 1), code: "ok"},
		{name: "report of an attempt of the future", path: reportPath, body: report("node-1", now, s.running, 2), code: "ok"},
		{name: "report of an action that has not begun", path: reportPath, body: report("node-1", now, s.queued, 1), code: "ok"},
		{name: "report of an action that has ended", path: reportPath, body: report("node-1", now, s.ended, 1), code: "ok"},
		{name: "report of an action that never was", path: reportPath, body: report("node-1", now, s.absent, 1), code: "ok"},
		{name: "report without reason", path: reportPath, body: strings.Replace(report("node-1", now, s.running, 1), "EXITED", "UNSPECIFIED", 1),
			code: "invalid_argument", says: "reason"},
		{name: "report of attempt 0", path: reportPath, body: report("node-1", now, s.running, 0), code: "invalid_argument", says: "attempt"},
		{name: "no reports", path: reportPath, body: lease("node-1", now), code: "invalid_argument", says: "reports"},
	}
}

// peer is what only servers call, or anybody where there is no TLS.
func (s *scene) peer() []request {
	const propose = "/peer.v1.PeerService/Propose"
	return []request{
		{name: "no protocol buffer", path: propose, contentType: "application/proto", body: "\xff\xff\xff\xff", code: "invalid_argument"},
		{name: "command of the future", path: propose, body: `{"commands":[{}]}`, code: "ok", says: "UNKNOWN_VERB"},
		{name: "submission of nothing", path: propose, body: `{"commands":[{"submitActions":{}}]}`, code: "ok", says: "INVALID"},
		{name: "action without cores", path: propose, body: `{"commands":[{"submitActions":{"actions":[{}]}}]}`, code: "ok", says: "INVALID"},
		{name: "node without a name", path: propose, body: `{"commands":[{"registerNode":{}}]}`, code: "ok", says: "INVALID"},
		{name: "another bootstrap", path: propose, body: `{"commands":[{"bootstrap":{}}]}`, code: "ok", says: "BOOTSTRAPPED"},
		{name: "more than an entry may hold", path: propose, contentType: "application/proto",
			body: field(1, field(1, strings.Repeat("x", 16<<20))), code: "resource_exhausted"},
	}
}

func (s *scene) operator() []request {
	const operator, nodes = "OperatorService/", "NodeService/"
	return []request{
		{name: "namespace with a bad name", path: operator + "CreateNamespace", body: `{"name":"A B"}`, code: "invalid_argument"},
		{name: "peer without an address", path: operator + "AddPeer", body: `{"id":"x"}`, code: "invalid_argument"},
		{name: "peer that is none", path: operator + "RemovePeer", body: `{"id":"x"}`, code: "not_found"},
		{name: "leadership to nobody", path: operator + "TransferLeadership", body: `{"id":"x"}`, code: "not_found"},
		{name: "pool that is none", path: operator + "ResumePool", body: `{"name":"dry"}`, code: "not_found"},
		{name: "deletion of a pool that is none", path: operator + "DeletePool", body: `{"name":"dry"}`, code: "not_found"},
		{name: "deletion of a pool with nodes", path: operator + "DeletePool", body: `{"name":"default"}`, code: "failed_precondition"},
		{name: "deletion of a namespace in use", path: operator + "DeleteNamespace", body: `{"name":"default"}`, code: "failed_precondition"},
		{name: "part of a backup for a cluster in use", path: operator + "StageRestore", body: `{"id":"a","data":"AA=="}`, code: "failed_precondition"},
		{name: "part of a backup with a bad name", path: operator + "StageRestore", body: `{"id":"../a","data":"AA=="}`, code: "invalid_argument"},
		{name: "part of a backup far off", path: operator + "StageRestore", body: `{"id":"a","number":4000000000,"data":"AA=="}`, code: "invalid_argument"},
		{name: "backup that was not uploaded", path: operator + "CommitRestore", body: `{"id":"a","parts":3,"force":true}`, code: "failed_precondition"},
		{name: "feature level of the future", path: operator + "RaiseLevel", body: `{"level":4000000000}`, code: "failed_precondition"},
		{name: "hash of the future", path: operator + "GetStateHash", body: `{"minIndex":"9223372036854775807"}`,
			header: map[string]string{"Connect-Timeout-Ms": "500"}, code: "deadline_exceeded"},
		{name: "drain of an unknown node", path: nodes + "DrainNode", body: `{"name":"node-9"}`, code: "not_found"},
		{name: "removal of an unknown node", path: nodes + "RemoveNode", body: `{"name":"node-9"}`, code: "not_found"},
		{name: "removal of a node that is up", path: nodes + "RemoveNode", body: `{"name":"node-1"}`, code: "failed_precondition"},
	}
}
