package cli

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// units of sizes. Decimal and binary ones are told apart by the i.
var units = []struct {
	suffix string
	bytes  uint64
}{
	{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40}, {"PiB", 1 << 50},
	{"kB", 1e3}, {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}, {"PB", 1e15},
	{"K", 1 << 10}, {"M", 1 << 20}, {"G", 1 << 30}, {"T", 1 << 40}, {"P", 1 << 50},
	{"B", 1},
}

// size is a flag value in bytes, such as 512MiB.
type size uint64

// Type implements pflag.Value.
func (s *size) Type() string { return "size" }

// String implements pflag.Value.
func (s *size) String() string { return formatSize(uint64(*s)) }

// Set implements pflag.Value.
func (s *size) Set(text string) error {
	n, err := parseSize(text)
	*s = size(n)
	return err
}

// parseSize reads a number of bytes with an optional unit.
func parseSize(text string) (uint64, error) {
	number, unit := strings.TrimSpace(text), uint64(1)
	for _, u := range units {
		if rest, ok := strings.CutSuffix(number, u.suffix); ok {
			number, unit = strings.TrimSpace(rest), u.bytes
			break
		}
	}
	if n, err := strconv.ParseUint(number, 10, 64); err == nil {
		if n > math.MaxUint64/unit {
			return 0, fmt.Errorf("%q is too large", text)
		}
		return n * unit, nil
	}
	f, err := strconv.ParseFloat(number, 64)
	if err != nil || !(f >= 0) || f*float64(unit) >= 1<<63 {
		return 0, fmt.Errorf("%q is not a size; write it like 512MiB, 2GB or 1048576", text)
	}
	return uint64(f * float64(unit)), nil
}

// formatSize writes bytes with the largest binary unit that keeps it short.
func formatSize(n uint64) string {
	switch {
	case n == 0:
		return "0"
	case n >= 1<<40 && n%(1<<40) == 0:
		return fmt.Sprintf("%dTiB", n>>40)
	case n >= 10<<30:
		return fmt.Sprintf("%.1fGiB", float64(n)/(1<<30))
	case n >= 1<<30:
		return fmt.Sprintf("%.2fGiB", float64(n)/(1<<30))
	case n >= 1<<20:
		return fmt.Sprintf("%.0fMiB", float64(n)/(1<<20))
	case n >= 1<<10:
		return fmt.Sprintf("%.0fKiB", float64(n)/(1<<10))
	}
	return fmt.Sprintf("%dB", n)
}
