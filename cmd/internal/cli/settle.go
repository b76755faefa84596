package cli

import (
	"fmt"
	"slices"
	"strings"

	rotav1 "rota/api/gen/rota/v1"
	"rota/api/settle"
)

// settleQuotas adds NAME=RULE of each --settle to the quota that it is for.
func settleQuotas(quotas []*rotav1.QuotaDemand, texts []string, call bool) error {
	for _, text := range texts {
		name, rule, _ := strings.Cut(text, "=")
		i := slices.IndexFunc(quotas, func(q *rotav1.QuotaDemand) bool { return q.Quota == name })
		_, err := settle.Parse(rule)
		switch {
		case !call:
			return usageErrorf("--settle is for an HTTP call; a command writes what it used into the file $ROTA_USAGE_FILE")
		case i < 0:
			return usageErrorf("--settle %q needs --quota %s=UNITS with what the call is expected to use", text, name)
		case err != nil:
			return usageErrorf("--settle %q: %v", text, err)
		case quotas[i].Settle != "":
			return usageErrorf("--settle names quota %s twice", name)
		}
		quotas[i].Settle = rule
	}
	return nil
}

// usageText says "1834 of tokens (2000 expected)".
func usageText(act *rotav1.Action) string {
	var texts []string
	for _, u := range act.GetQuotaUsage() {
		text := fmt.Sprintf("%d of %s", u.Units, u.Quota)
		for _, q := range act.GetSpec().GetResources().GetQuotas() {
			if expected := max(1, q.Units); q.Quota == u.Quota && uint64(expected) != u.Units {
				text += fmt.Sprintf(" (%d expected)", expected)
			}
		}
		texts = append(texts, text)
	}
	return strings.Join(texts, ", ")
}

// settledText says how many attempts said what they used, and how much that is on average.
func settledText(q *rotav1.Quota) string {
	switch q.SettledAttempts {
	case 0:
		return ""
	case 1:
		return fmt.Sprintf("1 attempt, which used %d", q.SettledUnits)
	}
	return fmt.Sprintf("%d attempts, which used %d on average", q.SettledAttempts, q.SettledUnits/q.SettledAttempts)
}
