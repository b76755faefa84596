package mountinfo

import (
	"os"
	"strings"
)

// Mount is one mount.
type Mount struct {
	// Point is where it is mounted.
	Point string
	// Type is that of the file system, and Source what it says that it is of.
	Type, Source string
	// Shared: mounts that are made below it reach the namespaces that were made before as its peers
	// or slaves.
	Shared bool
}

// Read returns all mounts, in the order in which they were made.
func Read() ([]Mount, error) {
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	return Parse(string(b)), nil
}

var unescape = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)

// Parse reads the text of a mountinfo file. It leaves out lines that it does not understand.
func Parse(text string) (mounts []Mount) {
	for line := range strings.Lines(text) {
		// 31 23 0:31 / /run/kv rw shared:7 - fuse.rota-kv rota-kv rw
		before, after, ok := strings.Cut(line, " - ")
		fields, rest := strings.Fields(before), strings.Fields(after)
		if !ok || len(fields) < 6 || len(rest) < 2 {
			continue
		}
		m := Mount{Point: unescape.Replace(fields[4]), Type: rest[0], Source: rest[1]}
		for _, optional := range fields[6:] {
			m.Shared = m.Shared || strings.HasPrefix(optional, "shared:")
		}
		mounts = append(mounts, m)
	}
	return mounts
}
