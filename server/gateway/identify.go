package gateway

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
)

const (
	// trajectoryHeader names the trajectory of a request.
	trajectoryHeader = "Rota-Trajectory"
	// trajectoryPrefix begins a user or an API key that names one.
	trajectoryPrefix = "trajectory-"
)

var unnamed = &refusal{
	status: http.StatusBadRequest, code: "trajectory_missing",
	message: `the request names no trajectory: send the header "Rota-Trajectory: 7", or the field "user": "trajectory-7", or use the API key "trajectory-7"`,
}

var wrongKey = &refusal{
	status: http.StatusUnauthorized, code: "invalid_api_key",
	message: `the gateway needs one of its API keys, as in "Authorization: Bearer KEY" or "Authorization: Bearer KEY:trajectory-7"`,
}

// authorize checks the API key of a request and returns the trajectory that it names, 0 if none.
func (k keys) authorize(r *http.Request) (uint64, *refusal) {
	scheme, key, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "bearer") {
		key = ""
	}
	if k != nil {
		secret, rest, _ := strings.Cut(strings.TrimSpace(key), ":")
		if !k.has(secret) {
			return 0, wrongKey
		}
		key = rest
	}
	id, err := parseTrajectory(strings.TrimSpace(key), false)
	if err != nil {
		return 0, &refusal{status: http.StatusBadRequest, code: "trajectory_invalid", message: "API key: " + err.Error()}
	}
	return id, nil
}

// parseTrajectory reads trajectory-ID, or with bare also ID. Other texts are 0 unless they must be
// one.
func parseTrajectory(text string, bare bool) (uint64, error) {
	digits, ok := strings.CutPrefix(text, trajectoryPrefix)
	if !ok && !bare {
		return 0, nil
	}
	id, err := strconv.ParseUint(digits, 10, 64)
	if err != nil || id == 0 {
		return 0, fmt.Errorf("%q does not name a trajectory; send a number such as 7", text)
	}
	return id, nil
}

// trajectory is the one that a request names in any of the three ways; 0: none.
func trajectory(r *http.Request, byKey uint64, user []byte) (uint64, *refusal) {
	var named [3]uint64
	named[1] = byKey
	var err error
	if h := r.Header[trajectoryHeader]; len(h) > 0 {
		if named[0], err = parseTrajectory(strings.TrimSpace(h[0]), true); err != nil || len(h) > 1 {
			return 0, &refusal{status: http.StatusBadRequest, code: "trajectory_invalid", message: fmt.Sprintf("header %s: %q does not name one trajectory; send a number such as 7", trajectoryHeader, h)}
		}
	}
	if named[2], err = parseTrajectory(string(user), false); err != nil {
		return 0, &refusal{status: http.StatusBadRequest, code: "trajectory_invalid", message: "user: " + err.Error()}
	}
	var id uint64
	for _, n := range named {
		if n != 0 && id != 0 && n != id {
			return 0, &refusal{status: http.StatusBadRequest, code: "trajectory_ambiguous", message: fmt.Sprintf(
				"the request names trajectories %d and %d, in its header, its API key or its user; name one", id, n)}
		}
		id = max(id, n)
	}
	return id, nil
}
