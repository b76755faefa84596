package gateway

import (
	"strconv"

	rotav1 "rota/api/gen/rota/v1"
)

// dialect is how an engine is spoken to beyond OpenAI's API.
type dialect rotav1.WorkerDialect

const (
	openAI = dialect(rotav1.WorkerDialect_WORKER_DIALECT_OPENAI)
	vLLM   = dialect(rotav1.WorkerDialect_WORKER_DIALECT_VLLM)
	sgLang = dialect(rotav1.WorkerDialect_WORKER_DIALECT_SGLANG)
)

// continues reports whether the engine goes on behind the beginning of an answer.
func (d dialect) continues() bool { return d == vLLM || d == sgLang }

// priority is the value of the field "priority", nil if the engine has none. The cluster's goes
// from 0 to 1,000,000, the highest first. vLLM serves the lowest first; 0 is also what it accepts
// without priority scheduling, so the least urgent trajectories are 0 there.
func (d dialect) priority(p uint32) []byte {
	switch d {
	case vLLM:
		return strconv.AppendInt(nil, -int64(p), 10)
	case sgLang:
		return strconv.AppendUint(nil, uint64(p), 10)
	}
	return nil
}

// abort returns the path and the body of the call that ends a request in the engine; no path if
// it has none. The name is what the request has in the engine, as in JSON without quotes. vLLM
// puts a prefix before it, and a number behind it where a request may have several prompts.
func (d dialect) abort(end endpoint, name string) (path, body string) {
	switch {
	case d == sgLang && end != responses:
		return "/abort_request", `{"rid":"` + name + `"}`
	case d == vLLM && end == chat:
		return "/abort_requests", `{"request_ids":["chatcmpl-` + name + `"]}`
	case d == vLLM && end == completions:
		return "/abort_requests", `{"request_ids":["cmpl-` + name + `","cmpl-` + name + `-0"]}`
	}
	return "", ""
}
