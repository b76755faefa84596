package state

import "testing"

func TestEveryTableHasAName(t *testing.T) {
	seen := map[string]bool{}
	for i := range tables {
		name := tableNames[tables[i].id]
		if isNextTable := i >= len(tables)-len(nextTables); !isNextTable && (name == "" || seen[name]) {
			t.Errorf("table %d is called %q", tables[i].id, name)
		}
		seen[name] = true
	}
}
