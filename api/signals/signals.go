package signals

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// named is a signal with its number on Linux.
type named struct {
	number int
	name   string
}

// allowed are the signals that may be sent, in the order of their numbers on amd64 and arm64.
var allowed = []named{
	{1, "HUP"}, {2, "INT"}, {3, "QUIT"}, {9, "KILL"}, {10, "USR1"}, {12, "USR2"}, {14, "ALRM"}, {15, "TERM"},
	{18, "CONT"}, {19, "STOP"}, {20, "TSTP"}, {28, "WINCH"},
}

// Allowed reports whether a signal may be sent, by its number.
func Allowed(number int) bool {
	return slices.ContainsFunc(allowed, func(s named) bool { return s.number == number })
}

// Parse returns the number of a signal that may be sent: INT, SIGINT, int or 2.
func Parse(text string) (number int, err error) {
	name := strings.TrimPrefix(strings.ToUpper(text), "SIG")
	for _, s := range allowed {
		if name == s.name || text == strconv.Itoa(s.number) {
			return s.number, nil
		}
	}
	return 0, fmt.Errorf("%.32q is no signal that may be sent: %s", text, names())
}

// names lists all of them.
func names() string {
	all := make([]string, len(allowed))
	for i, s := range allowed {
		all[i] = s.name
	}
	return strings.Join(all, ", ")
}
