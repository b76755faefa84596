package gateway

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
)

// refusal is an answer of the gateway itself, in the form that OpenAI's clients know.
type refusal struct {
	status     int
	code       string
	message    string
	retryAfter int // seconds; 0: no use
}

func (r *refusal) Error() string { return r.message }

// problem is the object of an error.
type problem struct {
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Param   *string `json:"param"`
	Code    string  `json:"code"`
}

const problemType = "gateway_error"

// answer sends the refusal as an answer of its own.
func (r *refusal) answer(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/json")
	if r.retryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(r.retryAfter))
	}
	w.WriteHeader(r.status)
	raw, err := json.Marshal(map[string]problem{"error": {Message: r.message, Type: problemType, Code: r.code}})
	if err == nil {
		_, _ = w.Write(append(raw, '\n'))
	}
}

// event is the refusal as the last event of a stream that has begun, the n-th of it.
func (r *refusal) event(end endpoint, n int) []byte {
	var v any = map[string]problem{"error": {Message: r.message, Type: problemType, Code: r.code}}
	head := "data: "
	if end == responses {
		head = "event: error\ndata: "
		v = struct {
			Type     string  `json:"type"`
			Code     string  `json:"code"`
			Message  string  `json:"message"`
			Param    *string `json:"param"`
			Sequence int     `json:"sequence_number"`
		}{"error", r.code, r.message, nil, n}
	}
	raw, err := json.Marshal(v)
	if err != nil {
		return nil
	}
	return append(append([]byte(head), raw...), '\n', '\n')
}

// refusalOf says in an answer why a request has no worker.
func refusalOf(err error, subject string) *refusal {
	r := &refusal{status: http.StatusServiceUnavailable, message: subject + " " + err.Error() + "; send the request again later", retryAfter: 5}
	switch {
	case errors.Is(err, errUnknown):
		return &refusal{status: http.StatusNotFound, code: "trajectory_not_found", message: subject + " " + err.Error()}
	case errors.Is(err, errEnded):
		return &refusal{status: http.StatusGone, code: "trajectory_ended", message: subject + " " + err.Error() + "; open another one"}
	case errors.Is(err, errNoRoutes):
		r.code, r.message = "no_routes", err.Error()+"; send the request again later"
	case errors.Is(err, errNoPolicy):
		return &refusal{status: http.StatusNotFound, code: "model_not_found", message: err.Error() + "; GET /v1/models names all policies"}
	case errors.Is(err, errSuspended):
		r.code = "trajectory_suspended"
	case errors.Is(err, errPublishing):
		r.code = "policy_suspended"
	default:
		r.code = "no_worker"
	}
	return r
}
