package cli

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// TestFlagsInDeploymentsExist: those of the Helm chart and of the compose file.
func TestFlagsInDeploymentsExist(t *testing.T) {
	deploy := filepath.Join("..", "..", "..", "deploy")
	flag := regexp.MustCompile(`--([a-z][a-z-]+)`)
	n := 0
	check := func(file, command, args string) {
		cmd, _, err := (&app{}).root().Find([]string{command})
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range flag.FindAllStringSubmatch(args, -1) {
			n++
			if cmd.Flags().Lookup(m[1]) == nil {
				t.Errorf("%s: rota %s has no --%s", file, command, m[1])
			}
		}
	}
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join(deploy, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	listed := regexp.MustCompile(`(?m)^ +- --[a-z-]+`)
	for _, command := range []string{"server", "agent"} {
		file := "helm/templates/" + command + ".yaml"
		for _, line := range listed.FindAllString(read(file), -1) {
			check(file, command, line)
		}
	}
	for _, m := range regexp.MustCompile(`command: \[(server|agent), ([^\]]*)\]`).FindAllStringSubmatch(read("compose.yaml"), -1) {
		check("compose.yaml", m[1], m[2])
	}
	if n < 30 {
		t.Errorf("only %d flags were found", n)
	}
}
