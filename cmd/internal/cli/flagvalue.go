package cli

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/pflag"
)

// flagError describes a wrong value in the user's terms. The errors of the parsers name
// Go functions.
func flagError(err error) error {
	var invalid *pflag.InvalidValueError
	if !errors.As(err, &invalid) {
		return err
	}
	flag := invalid.GetFlag()
	if wrong := wrongValue(flag.Value.Type(), err); wrong != "" {
		return fmt.Errorf("--%s %q %s", flag.Name, invalid.GetValue(), wrong)
	}
	return fmt.Errorf("--%s: %w", flag.Name, errors.Unwrap(err)) // one of our own
}

// wrongValue ends a sentence that begins with a value of a Go type.
func wrongValue(kind string, err error) string {
	switch {
	case errors.Is(err, strconv.ErrRange):
		return "is too large"
	case kind == "duration":
		return "is not a duration; write it like 500ms, 30s, 10m or 2h"
	case kind == "bool":
		return "is neither true nor false"
	case kind == "float64":
		return "is not a number"
	case errors.Is(err, strconv.ErrSyntax):
		return "is not a whole number from 0 on"
	}
	return ""
}

// checkDurations refuses negative durations: no flag gives them a meaning.
func checkDurations(flags *pflag.FlagSet) (err error) {
	flags.Visit(func(f *pflag.Flag) {
		if f.Value.Type() != "duration" {
			return
		}
		if d, parseErr := time.ParseDuration(f.Value.String()); parseErr == nil && d < 0 {
			err = usageErrorf("--%s is %v, and must not be negative", f.Name, d)
		}
	})
	return err
}
