package demo

import (
	"errors"
	"io/fs"
	"os"
	"strconv"
	"strings"
)

// witness is a file outside of rota to which every execution of a command
// appends a line, before it does anything else. It cannot be fooled by what the
// cluster believes.
type witness struct{ path string }

// wrap makes a command that bears witness and then becomes the given one. A
// line this short is appended in one piece.
func (w witness) wrap(argv []string) []string {
	script := `echo "$ROTA_ACTION_ID $ROTA_FENCING_TOKEN" >> "$0" && exec "$@"`
	return append([]string{"sh", "-c", script, w.path}, argv...)
}

// executions returns how often each action was executed.
func (w witness) executions() (map[uint64]int, error) {
	raw, err := os.ReadFile(w.path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	count := map[uint64]int{}
	for line := range strings.Lines(string(raw)) {
		id, _, _ := strings.Cut(line, " ")
		n, err := strconv.ParseUint(id, 10, 64)
		if err != nil {
			return nil, errors.New("witness file: malformed line " + strconv.Quote(line))
		}
		count[n]++
	}
	return count, nil
}
