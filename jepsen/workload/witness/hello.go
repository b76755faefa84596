package witness

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"rota/jepsen/history"
)

// What a probe sends, each a line: first its hello, then, once all work is done,
// that it is complete. The fields of a hello are the token, the node, the
// request ID of the submission, and the CPUs that it may run on: "0,2", or "-" on
// nodes that do not pin.
const (
	helloFields  = 4
	completeLine = "complete"
	notPinned    = "-"
)

// ack is the answer to a hello: the start is recorded, the probe may work.
var ack = []byte{'\n'}

// parseHello reads the first line of a probe.
func parseHello(line string) (e history.Execution, err error) {
	fields := strings.Fields(line)
	if len(fields) != helloFields {
		return e, fmt.Errorf("a probe began with %q, which is not: token node request cpus", line)
	}
	e.Node, e.RequestID = fields[1], fields[2]
	if e.Action, e.Attempt, e.Incarnation, err = parseToken(fields[0]); err != nil {
		return e, err
	}
	e.Cores, err = parseCPUs(fields[3])
	return e, err
}

// parseToken reads ROTA_TOKEN: action.attempt.incarnation.
func parseToken(token string) (action uint64, attempt uint32, incarnation uint64, err error) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return 0, 0, 0, fmt.Errorf("a probe has the token %q, which is not action.attempt.incarnation", token)
	}
	var n [3]uint64
	for i, bits := range []int{64, 32, 64} {
		if n[i], err = strconv.ParseUint(parts[i], 10, bits); err != nil {
			return 0, 0, 0, fmt.Errorf("a probe has the token %q: %w", token, err)
		}
	}
	return n[0], uint32(n[1]), n[2], nil
}

func parseCPUs(list string) (cpus []int, err error) {
	if list == notPinned {
		return nil, nil
	}
	for field := range strings.SplitSeq(list, ",") {
		cpu, err := strconv.Atoi(field)
		if err != nil {
			return nil, fmt.Errorf("a probe runs on the CPUs %q: %w", list, err)
		}
		cpus = append(cpus, cpu)
	}
	slices.Sort(cpus)
	return cpus, nil
}
