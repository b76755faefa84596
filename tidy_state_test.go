package rota_test

import (
	"fmt"
	"go/ast"
	"slices"
	"strings"
	"testing"
)

// uncheckedTables finds what servers replicate and no invariant speaks of: for
// each table of the state, Check must call a method that is named after it, by
// itself or in CheckRows.
func uncheckedTables(files []file) (findings []string) {
	var tables, checks []string
	for _, f := range files {
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.TypeSpec:
				if n.Name.Name == "containers" {
					tables = append(tables, replicatedFields(n)...)
				}
			case *ast.FuncDecl:
				if n.Name.Name == "Check" || n.Name.Name == "CheckRows" {
					checks = append(checks, namesIn(n.Body)...)
				}
				return false
			}
			return true
		})
	}
	if len(tables) == 0 {
		return []string{"no type containers with tables found: look for them elsewhere"}
	}
	for _, table := range tables {
		if check := "check" + strings.ToUpper(table[:1]) + table[1:]; !slices.Contains(checks, check) {
			findings = append(findings, fmt.Sprintf("no invariant mentions the table %s: write State.%s and call it in Check or CheckRows", table, check))
		}
	}
	return findings
}

// replicatedFields are those of the state that are not derived from others.
func replicatedFields(state *ast.TypeSpec) (names []string) {
	fields, ok := state.Type.(*ast.StructType)
	if !ok {
		return nil
	}
	derived := []string{"index", "enc"}
	for _, field := range fields.Fields.List {
		for _, name := range field.Names {
			if !slices.Contains(derived, name.Name) {
				names = append(names, name.Name)
			}
		}
	}
	return names
}

func namesIn(body *ast.BlockStmt) (names []string) {
	ast.Inspect(body, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok {
			names = append(names, s.Sel.Name)
		}
		return true
	})
	return names
}

func TestEveryReplicatedTableHasAnInvariant(t *testing.T) {
	var files []file
	for _, f := range goFiles(t) {
		if f.dir() == "fsm/state" && !f.test() {
			files = append(files, f)
		}
	}
	report(t, uncheckedTables(files))

	expect(t, uncheckedTables([]file{
		parse(t, "fsm/state/state.go", "package state\ntype containers struct {\nnodes, quotas table\nchunks table\nindex indexes\n}\n"),
		parse(t, "fsm/state/check.go", "package state\nfunc (s *State) CheckRows() { s.checkNodes(); s.checkChunk() }\nfunc (s *State) other() { s.checkQuotas() }\n"),
	}), "table quotas", "table chunks")
	expect(t, uncheckedTables([]file{parse(t, "fsm/state/x.go", "package state\n")}), "no type containers")
}
