package gpuhealth

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// ErrStated means that a text does not say which GPUs are sick.
var ErrStated = errors.New("gpuhealth: not a list of sick GPUs")

// ParseStated reads which GPUs of so many are sick: a line for each, with its number and the
// reason, such as "3 XID 79". Empty lines and those that begin with # say nothing. Several lines
// of the same GPU are several reasons.
func ParseStated(text string, gpus int) (map[int][]Condition, error) {
	sick := map[int][]Condition{}
	for i, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		number, reason, _ := strings.Cut(line, " ")
		gpu, err := strconv.Atoi(number)
		if err != nil || gpu < 0 || gpu >= gpus {
			return nil, fmt.Errorf("%w: line %d begins with %.20q, which is not the number of one of %d GPUs, from 0 on; write lines such as: 3 XID 79", ErrStated, i+1, number, gpus)
		}
		sick[gpu] = append(sick[gpu], Stated(reason))
	}
	return sick, nil
}
