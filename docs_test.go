package rota_test

import (
	"fmt"
	"go/ast"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	linkRE    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	headingRE = regexp.MustCompile(`(?m)^#+ (.+)$`)
	metricRE  = regexp.MustCompile("`(rota_[a-z_]+)`")
	testRE    = regexp.MustCompile("`(Test[A-Z][A-Za-z0-9]*)[/`]")
	ruleRE    = regexp.MustCompile(`^\|[-:| ]+$`)
	makeRE    = regexp.MustCompile("(?m)(?:^|`)make ([a-z][a-z-]*)(?:`| +#| [A-Z]+=|$)")
)

// documents are all Markdown files by path.
func documents(t *testing.T) map[string]string {
	t.Helper()
	docs := map[string]string{}
	walk(t, func(name string) {
		if path.Ext(name) != ".md" {
			return
		}
		text, err := os.ReadFile(filepath.FromSlash(name))
		if err != nil {
			t.Fatal(err)
		}
		docs[name] = string(text)
	})
	if docs["README.md"] == "" || len(docs) < 5 {
		t.Fatalf("only %d documents found", len(docs))
	}
	return docs
}

// anchors are what a link can point at inside a document, as GitHub makes them.
func anchors(text string) map[string]bool {
	all := map[string]bool{}
	for _, m := range headingRE.FindAllStringSubmatch(text, -1) {
		id := strings.Map(func(r rune) rune {
			switch {
			case r >= 'a' && r <= 'z', r >= '0' && r <= '9', r == '-', r == '_':
				return r
			case r == ' ':
				return '-'
			}
			return -1
		}, strings.ToLower(m[1]))
		all[id] = true
	}
	return all
}

// brokenLinks finds relative links to what does not exist. exists says whether a
// path of the repository does.
func brokenLinks(docs map[string]string, exists func(string) bool) (findings []string) {
	headings := map[string]map[string]bool{}
	for name, text := range docs {
		headings[name] = anchors(text)
	}
	for name, text := range docs {
		for _, m := range linkRE.FindAllStringSubmatch(text, -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			file, anchor, _ := strings.Cut(m[1], "#")
			target := name
			if file != "" {
				target = path.Join(path.Dir(name), file)
			}
			switch {
			case !exists(target):
				findings = append(findings, fmt.Sprintf("%s: %s does not exist", name, m[1]))
			case anchor != "" && !headings[target][anchor]:
				findings = append(findings, fmt.Sprintf("%s: %s has no such heading", name, m[1]))
			}
		}
	}
	return findings
}

func TestLinksOfDocumentsResolve(t *testing.T) {
	report(t, brokenLinks(documents(t), func(name string) bool {
		_, err := os.Stat(filepath.FromSlash(name))
		return err == nil
	}))

	docs := map[string]string{
		"docs/a.md": "# One two\n[ok](b.md#x-y) [gone](c.md) [no](b.md#z) [web](https://example.org/x)",
		"docs/b.md": "## X, y\n[up](a.md#one-two)",
	}
	expect(t, brokenLinks(docs, func(name string) bool { return docs[name] != "" }),
		"docs/a.md: c.md does not exist", "docs/a.md: b.md#z has no such heading")
}

// brokenTables finds rows of tables that a reader sees as text: the first line of a table is
// followed by its rule, and nothing stands between its rows.
func brokenTables(docs map[string]string) (findings []string) {
	for name, text := range docs {
		lines, code := strings.Split(text, "\n"), false
		for i, line := range lines {
			if strings.HasPrefix(strings.TrimSpace(line), "```") {
				code = !code
			}
			isRow := strings.HasPrefix(line, "|")
			begins := isRow && (i == 0 || !strings.HasPrefix(lines[i-1], "|"))
			if !code && begins && (i+1 == len(lines) || !ruleRE.MatchString(lines[i+1])) {
				findings = append(findings, fmt.Sprintf("%s:%d: a row without a table: %.40s", name, i+1, line))
			}
		}
	}
	return findings
}

func TestTablesAreWhole(t *testing.T) {
	report(t, brokenTables(documents(t)))
	expect(t, brokenTables(map[string]string{"x.md": "| a |\n|---|\n| 1 |\n\nProse.\n| 2 |\n```\n| code |\n```\n"}), "x.md:6: a row without a table: | 2 |")
}

// unknownMetrics finds names of metrics that no code registers.
func unknownMetrics(docs map[string]string, code string) (findings []string) {
	for name, text := range docs {
		for _, m := range metricRE.FindAllStringSubmatch(text, -1) {
			if !strings.Contains(code, `"`+m[1]+`"`) {
				findings = append(findings, fmt.Sprintf("%s: there is no metric %s", name, m[1]))
			}
		}
	}
	return findings
}

// TestMetricsAreDocumentedAndExist compares in both directions.
func TestMetricsAreDocumentedAndExist(t *testing.T) {
	var code, all strings.Builder
	for _, f := range goFiles(t) {
		if f.test() || f.dir() != "internal/telemetry" {
			continue
		}
		text, err := os.ReadFile(filepath.FromSlash(f.path))
		if err != nil {
			t.Fatal(err)
		}
		code.Write(text)
	}
	docs := documents(t)
	report(t, unknownMetrics(docs, code.String()))
	for _, text := range docs {
		all.WriteString(text)
	}
	registered := regexp.MustCompile(`"(rota_[a-z_]+)"`).FindAllStringSubmatch(code.String(), -1)
	if len(registered) < 5 {
		t.Fatalf("only %d metrics found in the code", len(registered))
	}
	for _, m := range registered {
		if !strings.Contains(all.String(), "`"+m[1]+"`") {
			t.Errorf("metric %s is not documented", m[1])
		}
	}

	expect(t, unknownMetrics(map[string]string{"x.md": "`rota_gone` and `rota_here`"}, `Name: "rota_here"`), "x.md: there is no metric rota_gone")
}

// missing finds what documents name and nobody has, by a pattern with one group.
func missing(docs map[string]string, pattern *regexp.Regexp, what string, exists func(string) bool) (findings []string) {
	for name, text := range docs {
		for _, m := range pattern.FindAllStringSubmatch(text, -1) {
			if !exists(m[1]) {
				findings = append(findings, fmt.Sprintf("%s: there is no %s %s", name, what, m[1]))
			}
		}
	}
	return findings
}

// TestTestsAndTargetsInDocumentsExist: a bug's row names the test that keeps it
// away, which is worth nothing if the test has another name by now.
func TestTestsAndTargetsInDocumentsExist(t *testing.T) {
	docs := documents(t)
	tests := map[string]bool{}
	for _, f := range goFiles(t) {
		for _, decl := range f.syntax.Decls {
			if fn, ok := decl.(*ast.FuncDecl); ok && f.test() && fn.Recv == nil {
				tests[fn.Name.Name] = true
			}
		}
	}
	makefile, err := os.ReadFile("Makefile")
	if err != nil {
		t.Fatal(err)
	}
	isTest := func(name string) bool { return tests[name] }
	isTarget := func(name string) bool { return strings.Contains("\n"+string(makefile), "\n"+name+":") }
	report(t, missing(docs, testRE, "test", isTest))
	report(t, missing(docs, makeRE, "target", isTarget))

	planted := map[string]string{"x.md": "`TestGone` and `TestGone/case`, `TestLinksOfDocumentsResolve`\nmake gone\n`make test FUZZTIME=5m`"}
	expect(t, missing(planted, testRE, "test", isTest), "x.md: there is no test TestGone", "x.md: there is no test TestGone")
	expect(t, missing(planted, makeRE, "target", isTarget), "x.md: there is no target gone")
}

// TestArchitectureNamesEveryFolder: a reader of the walk through the house misses no room.
func TestArchitectureNamesEveryFolder(t *testing.T) {
	text := ""
	for section := range strings.SplitSeq(documents(t)["docs/architecture.md"], "\n## ") {
		switch title, _, _ := strings.Cut(section, "\n"); title {
		case "The house", "Simulation", "Fault injection":
			text += section
		}
	}
	for _, f := range goFiles(t) {
		dir := f.dir()
		if f.test() || f.generated() || dir == "." || named(text, dir) {
			continue
		}
		t.Errorf("docs/architecture.md does not name %s, nor a folder of fault injection or simulation that it is in", dir)
		text += "`" + dir + "`" // once
	}
}

// named reports whether a text names a folder or the folder of tests, or of a command
// that only tests run, that it is in.
func named(text, dir string) bool {
	for _, parent := range []string{"cmd/rota", "cmd/internal/demo", "cmd/etcd-bench", "internal/clock", "jepsen/hostile", "jepsen/workload"} {
		if strings.HasPrefix(dir, parent+"/") {
			dir = parent
		}
	}
	return strings.Contains(text, "`"+dir+"`")
}
