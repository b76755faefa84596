package witness

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"rota/jepsen/history"
)

// What a probe sends, each a line: first its hello, then, once all work is done,
// that it is complete. In between, one whose CPUs may change says which it sees itself run
// on, and from when to when, in nanoseconds of the monotonic clock: "seen 0,2 100 200". The fields of a hello are the token, the node, the request
// ID of the submission, the CPUs that it may run on, the number of cores that it
// was told it has, the GPUs that it is to use, the keys of quotas that it was given ("OPENAI=2,JUDGE=1"), and what its action
// has asked for, as JSON. Lists are like "0,2"; what there is none of is "-", such
// as CPUs on nodes that do not pin.
//
// A probe that called the engine of its model says what that said of itself, "answered judge
// c3.14 0,1", or "unserved" if it was not told where the engine is. An engine makes a
// connection when it starts, and another one for as long as it holds memory of its GPUs. Each
// begins with: engine node model declaration GPUs bytes process, and "alive" or "awake".
//
// A probe of a trajectory leaves its token in the directory of the trajectory, and says whose
// it has found there before: "marked 7 41.1.7,42.1.7".
const (
	helloFields  = 8
	engineWord   = "engine"
	answeredWord = "answered"
	unservedLine = "unserved"
	completeLine = "complete"
	seenWord     = "seen"
	markedWord   = "marked"
	nothing      = "-"
)

// ack is the answer to a hello: the start is recorded, the probe may work.
var ack = []byte{'\n'}

// parseHello reads the first line of a probe.
func parseHello(line string) (e history.Execution, err error) {
	fields := strings.Fields(line)
	if len(fields) != helloFields {
		return e, fmt.Errorf("a probe began with %q, which is not: token node request cpus width gpus keys asked", line)
	}
	e.Node, e.RequestID = fields[1], fields[2]
	if e.Action, e.Attempt, e.Incarnation, err = parseToken(fields[0]); err != nil {
		return e, err
	}
	if e.Cores, err = parseNumbers(fields[3]); err != nil {
		return e, fmt.Errorf("a probe runs on the CPUs %q: %w", fields[3], err)
	}
	if e.Width, err = strconv.Atoi(fields[4]); err != nil {
		return e, fmt.Errorf("a probe has %q cores: %w", fields[4], err)
	}
	if e.GPUs, err = parseNumbers(fields[5]); err != nil {
		return e, fmt.Errorf("a probe uses the GPUs %q: %w", fields[5], err)
	}
	if err := json.Unmarshal([]byte(fields[7]), &e.Asked); err != nil {
		return e, fmt.Errorf("a probe has asked for %q: %w", fields[7], err)
	}
	e.Uses, err = parseUses(fields[6], e.Asked.Quotas)
	return e, err
}

// parseServing reads the first line of an engine.
func parseServing(line string) (s history.Serving, err error) {
	fields := strings.Fields(line)
	if len(fields) != helloFields || fields[7] != "awake" && fields[7] != "alive" {
		return s, fmt.Errorf("an engine began with %q, which is not: engine node model declaration gpus bytes process alive|awake", line)
	}
	s.Node, s.Model, s.Declaration, s.Process, s.Awake = fields[1], fields[2], fields[3], fields[6], fields[7] == "awake"
	if s.GPUs, err = parseNumbers(fields[4]); err != nil {
		return s, fmt.Errorf("an engine has the GPUs %q: %w", fields[4], err)
	}
	if len(s.GPUs) == 0 {
		return s, fmt.Errorf("an engine has no GPUs: %q", line)
	}
	if s.MemoryBytes, err = strconv.ParseUint(fields[5], 10, 64); err != nil {
		return s, fmt.Errorf("an engine holds %q bytes: %w", fields[5], err)
	}
	return s, nil
}

// parseAnswer reads what a probe heard of an engine.
func parseAnswer(line string) (a history.Answer, err error) {
	fields := strings.Fields(line)
	if len(fields) != 4 {
		return a, fmt.Errorf("a probe said %q, which is not: answered model declaration gpus", line)
	}
	a.Model, a.Declaration = fields[1], fields[2]
	if a.GPUs, err = parseNumbers(fields[3]); err != nil {
		return a, fmt.Errorf("a probe was answered from the GPUs %q: %w", fields[3], err)
	}
	return a, nil
}

// parseSeen reads such a line.
func parseSeen(line string) (s history.Seen, err error) {
	var list string
	if _, err := fmt.Sscanf(line, seenWord+" %s %d %d", &list, &s.From, &s.Until); err != nil {
		return s, fmt.Errorf("a probe said %q: %w", line, err)
	}
	if s.Cores, err = parseNumbers(list); err != nil || s.Until < s.From {
		return s, fmt.Errorf("a probe says %q of the CPUs that it runs on: %w", line, err)
	}
	return s, nil
}

// parseMarked reads in which trajectory a probe has left its mark, and what it has found there.
func parseMarked(line string) (trajectory uint64, found []string, err error) {
	var list string
	if _, err := fmt.Sscanf(line, markedWord+" %d %s", &trajectory, &list); err != nil || trajectory == 0 {
		return 0, nil, fmt.Errorf("a probe said %q, which is not: marked trajectory tokens: %w", line, err)
	}
	if list == nothing {
		return trajectory, nil, nil
	}
	return trajectory, strings.Split(list, ","), nil
}

// parseUses adds to what an action has asked of quotas the keys that its attempt
// was given.
func parseUses(list string, asked []history.Use) (uses []history.Use, err error) {
	keys := make(map[string]uint32)
	for field := range strings.SplitSeq(list, ",") {
		name, number, _ := strings.Cut(field, "=")
		if list == nothing {
			break
		}
		key, err := strconv.ParseUint(number, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("a probe has the keys %q: %w", list, err)
		}
		keys[name] = uint32(key)
	}
	for _, use := range asked {
		use.Key = keys[strings.ToUpper(use.Quota)]
		uses = append(uses, use)
	}
	return uses, nil
}

// parseToken reads ROTA_FENCING_TOKEN: action.attempt.incarnation.
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

func parseNumbers(list string) (numbers []int, err error) {
	if list == nothing {
		return nil, nil
	}
	for field := range strings.SplitSeq(list, ",") {
		n, err := strconv.Atoi(field)
		if err != nil {
			return nil, err
		}
		numbers = append(numbers, n)
	}
	slices.Sort(numbers)
	return numbers, nil
}
