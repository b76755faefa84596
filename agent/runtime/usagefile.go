package runtime

import (
	"slices"
	"strconv"
	"strings"

	"rota/agent/plan"
)

// usageVariable names, in the environment of an attempt that uses quotas, a file that is empty.
// What the attempt writes there says what it really used: lines of the name of a quota and a
// number of units. Lines of the same quota are added up.
const usageVariable = "ROTA_USAGE_FILE"

const usageFile = "usage"

const (
	// usageBytesMax is how much of such a file is read: a line for each of some ten thousand
	// calls.
	usageBytesMax = 1 << 20
	// usageUnitsMax bounds units, as limits of quotas are.
	usageUnitsMax = 1_000_000_000
	// usageNameMax bounds names, as those of quotas are.
	usageNameMax = 128
)

// usage returns what an attempt has said that it used.
func (f *throttleFiles) usage(k plan.Key) []plan.QuotaUse {
	return usageOf(f.text(k, usageFile, usageBytesMax))
}

// usageOf reads whole lines. What is not such a line is passed over, and so are quotas beyond
// those that an attempt may speak of.
func usageOf(text string) (uses []plan.QuotaUse) {
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) != 2 || !strings.HasSuffix(line, "\n") || !quotaName(words[0]) {
			continue
		}
		units, err := strconv.ParseUint(words[1], 10, 64)
		if err != nil {
			continue
		}
		i := slices.IndexFunc(uses, func(u plan.QuotaUse) bool { return u.Quota == words[0] })
		if i < 0 && len(uses) == plan.UsagesMax {
			continue
		}
		if i < 0 {
			i, uses = len(uses), append(uses, plan.QuotaUse{Quota: words[0]})
		}
		uses[i].Units = min(uses[i].Units+min(units, usageUnitsMax), usageUnitsMax)
	}
	return uses
}

// quotaName reports whether a quota can be called so.
func quotaName(s string) bool {
	return len(s) <= usageNameMax && !strings.ContainsFunc(s, func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '.'
	})
}
