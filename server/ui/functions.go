package ui

import (
	"fmt"
	"html/template"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	rotav1 "rota/api/gen/rota/v1"
)

// functions are what templates can call.
var functions = template.FuncMap{
	"brief":    brief,
	"duration": func(d *durationpb.Duration) string { return brief(d.AsDuration()) },
	"ago":      ago,
	"stamp":    stamp,
	"word":     word,
	"bytes":    bytesText,
	"percent":  percent,
	"list":     ranges,
	"command":  func(argv []string) string { return clip(strings.Join(argv, " "), 160) },
	"sub":      func(a, b uint64) uint64 { return a - min(a, b) },
	"sub32":    func(a int, b []uint32) int { return a - len(b) },
	"cores":    coresOf,
	"text":     func(b []byte) string { return strings.ToValidUTF8(string(b), "\uFFFD") },
	"colour":   func(id uint64) uint64 { return id % coloursMax },
	"nav":      navOf,
	"usage":    usageOf,
	"amount":   func(n, most uint64) gauge { return gauge{percent(n, most), strconv.FormatUint(n, 10)} },
	"int":      func(n uint32) int { return int(n) },
	"add":      func(a, b any) uint64 { return uint64(number(a) + number(b)) },
	"rate":     func(f float64) string { return strconv.FormatFloat(f, 'f', 1, 64) },
	"json":     func(s sample) string { return fmt.Sprintf("%v", strings.ReplaceAll(fmt.Sprint(s), " ", ",")) },
}

// navEntry is an entry of the menu.
type navEntry struct {
	Path, Text string
	Here       bool
}

func navOf(s shown, name, path, text string) navEntry { return navEntry{path, text, s.Nav == name} }

// gauge is a bar with its words.
type gauge struct {
	Percent int
	Text    string
}

// usageOf is a bar of what is used of a whole: numbers, or bytes, or of a named kind.
func usageOf(used, whole any, kind string) gauge {
	g := gauge{Percent: percent(used, whole)}
	switch kind {
	case "bytes":
		g.Text = bytesText(uint64(number(used))) + " of " + bytesText(uint64(number(whole)))
	default:
		g.Text = strings.TrimSpace(fmt.Sprintf("%v of %v %s", used, whole, kind))
	}
	return g
}

// brief is a duration of three digits or so.
func brief(d time.Duration) string {
	switch {
	case d == 0:
		return "0"
	case d < time.Millisecond:
		return d.Round(time.Microsecond).String()
	case d < time.Second:
		return d.Round(100 * time.Microsecond).String()
	case d < time.Minute:
		return d.Round(10 * time.Millisecond).String()
	default:
		whole := d.Round(time.Second).String()
		if strings.HasSuffix(whole, "m0s") {
			return strings.TrimSuffix(whole, "0s")
		}
		return whole
	}
}

// ago is how long a moment has passed. It is rounded, so that a page that nothing happens on does
// not change with each second.
func ago(t *timestamppb.Timestamp) string {
	if t == nil {
		return ""
	}
	d := time.Since(t.AsTime())
	switch {
	case d < 2*time.Second:
		return "now"
	case d < time.Minute:
		return d.Round(2*time.Second).String() + " ago"
	case d < time.Hour:
		return fmt.Sprintf("%d min ago", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h ago", int(d.Hours()))
	default:
		return fmt.Sprintf("%d days ago", int(d.Hours()/24))
	}
}

func stamp(t *timestamppb.Timestamp) string {
	if t == nil {
		return ""
	}
	return t.AsTime().UTC().Format("2006-01-02 15:04:05.000 UTC")
}

// word is the last words of the name of an enum's value, such as "succeeded".
func word(v fmt.Stringer) string {
	name := v.String()
	for _, prefix := range []string{
		"ACTION_STATE_", "NODE_STATE_", "TRAJECTORY_STATE_", "JOB_STATE_", "ROLLOUT_STATE_", "WORKER_STATE_",
		"QUOTA_KIND_", "END_REASON_", "GENERATION_STATE_", "ENGINE_DRIVER_",
	} {
		name = strings.TrimPrefix(name, prefix)
	}
	return strings.ToLower(strings.ReplaceAll(name, "_", " "))
}

func bytesText(n uint64) string {
	const unit = 1024
	if n < unit {
		return strconv.FormatUint(n, 10) + " B"
	}
	f, i := float64(n), -1
	for f >= unit && i < 4 {
		f /= unit
		i++
	}
	return fmt.Sprintf("%.1f %ciB", f, "KMGTP"[i])
}

// percent is a part of a whole from 0 to 100; 0 of nothing.
func percent(part, whole any) int {
	a, b := number(part), number(whole)
	if b <= 0 {
		return 0
	}
	return int(min(100, max(0, 100*a/b)))
}

func number(v any) float64 {
	switch n := v.(type) {
	case int:
		return float64(n)
	case uint32:
		return float64(n)
	case uint64:
		return float64(n)
	}
	return 0
}

// ranges is a set of numbers, such as 0-3,7.
func ranges(numbers []uint32) string {
	n := slices.Sorted(slices.Values(numbers))
	var out []string
	for i := 0; i < len(n); {
		j := i
		for j+1 < len(n) && n[j+1] == n[j]+1 {
			j++
		}
		if i == j {
			out = append(out, strconv.Itoa(int(n[i])))
		} else {
			out = append(out, fmt.Sprintf("%d-%d", n[i], n[j]))
		}
		i = j + 1
	}
	return strings.Join(out, ",")
}

// coresOf is how many cores a node has.
func coresOf(n *rotav1.Node) (sum int) {
	for _, numa := range n.GetNumaNodes() {
		sum += len(numa.Cpus)
	}
	return sum
}

func clip(s string, most int) string {
	if r := []rune(s); len(r) > most {
		return string(r[:most]) + "…"
	}
	return s
}
