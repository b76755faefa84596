package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// otherVariables are the variables named ROTA_ that are no flags: what actions, calls and
// turns are told of themselves, and what tests and fault injection use. One that ends in _
// stands for all that begin with it.
var otherVariables = []string{
	"ROTA_CONFIG", "ROTA_ACTION_ID", "ROTA_TRAJECTORY_", "ROTA_TOKEN", "ROTA_FENCING_TOKEN", "ROTA_TOKEN_ATTEMPT", "ROTA_CORES", "ROTA_CORES_FILE",
	"ROTA_CPUS", "ROTA_GPUS", "ROTA_MODEL", "ROTA_NODE", "ROTA_PORT", "ROTA_ENGINE_", "ROTA_QUOTA_", "ROTA_GANG_", "ROTA_TURN_", "ROTA_THROTTLE_FILE",
	"ROTA_USAGE_FILE", "ROTA_HTTP_", "ROTA_STATE", "ROTA_SERVERS", "ROTA_TRACES", "ROTA_SUPERVISOR", "ROTA_ISOLATED", "ROTA_KVFS_SERVE",
	"ROTA_CLOCK", "ROTA_FAILPOINTS", "ROTA_REQUIRE", "ROTA_TEST_", "ROTA_RUNTIME_TEST",
}

// sections are the commands with a section in the config file, by its name.
func sections(root *cobra.Command) map[string]*cobra.Command {
	all := map[string]*cobra.Command{}
	for _, cmd := range root.Commands() {
		if name := cmd.Annotations[annotationSection]; name != "" {
			all[name] = cmd
		}
	}
	return all
}

// checkNames refuses keys of the config file and variables that mean nothing: they are
// misspelled, and would be ignored.
func checkNames(root *cobra.Command, file map[string]json.RawMessage, environ []string) error {
	keys, variables := flagNames(root.PersistentFlags(), ""), flagNames(root.PersistentFlags(), "ROTA_")
	keys = slices.DeleteFunc(keys, func(k string) bool { return k == "config" })
	var errs []error
	for name, cmd := range sections(root) {
		keys = append(keys, name)
		own := flagNames(cmd.LocalNonPersistentFlags(), "")
		variables = append(variables, flagNames(cmd.LocalNonPersistentFlags(), "ROTA_"+strings.ToUpper(name)+"_")...)
		section := map[string]json.RawMessage{}
		if raw, ok := file[name]; ok && json.Unmarshal(raw, &section) != nil {
			errs = append(errs, usageErrorf("config file: %q must be an object", name))
		}
		for _, key := range sortedKeys(section) {
			if !slices.Contains(own, key) {
				errs = append(errs, usageErrorf("config file: %q has no key %q%s", name, key, suggest(key, own)))
			}
		}
	}
	for _, key := range sortedKeys(file) {
		if !slices.Contains(keys, key) {
			errs = append(errs, usageErrorf("config file: unknown key %q%s", key, suggest(key, keys)))
		}
	}
	for _, entry := range environ {
		name, value, _ := strings.Cut(entry, "=")
		if strings.HasPrefix(name, "ROTA_") && !slices.Contains(variables, name) && !otherVariable(name) && !serviceLink(name, value) {
			errs = append(errs, usageErrorf("unknown variable %s%s; unset it", name, suggest(name, append(variables, "ROTA_CONFIG"))))
		}
	}
	slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errors.Join(errs...)
}

// serviceLink reports whether Kubernetes sets a variable in pods, for a service whose name begins with rota.
func serviceLink(name, value string) bool {
	port := ""
	if at := strings.LastIndex(name, "_PORT_"); at >= 0 {
		port = name[at+len("_PORT_"):]
	}
	return strings.HasSuffix(name, "_SERVICE_HOST") || strings.Contains(name, "_SERVICE_PORT") ||
		strings.HasSuffix(name, "_PORT") && strings.Contains(value, "://") || port >= "0" && port < ":" // it begins with a digit
}

func otherVariable(name string) bool {
	return slices.ContainsFunc(otherVariables, func(known string) bool {
		return name == known || strings.HasSuffix(known, "_") && strings.HasPrefix(name, known)
	})
}

// flagNames are the names of flags: as keys of the config file, or with a prefix as variables.
func flagNames(flags *pflag.FlagSet, prefix string) (names []string) {
	flags.VisitAll(func(f *pflag.Flag) {
		name := f.Name
		if prefix != "" {
			name = variableOf(prefix, f.Name)
		}
		if f.Name != "help" {
			names = append(names, name)
		}
	})
	return names
}

func variableOf(prefix, flag string) string {
	return prefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

func sortedKeys(m map[string]json.RawMessage) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// suggest names the known name that is nearest, if one is near.
func suggest(name string, known []string) string {
	best, least := "", max(2, len(name)/4)+1
	for _, k := range known {
		if d := distance(name, k); d < least {
			best, least = k, d
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf("; did you mean %q?", best)
}

// distance is how many letters have to be added, dropped or changed (Levenshtein 1966).
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		before := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			before, row[j+1] = row[j+1], min(before+cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

// configCmd has what concerns the config file.
func (a *app) configCmd() *cobra.Command {
	return group("config", "Check and print settings: flags, variables and the config file", a.configValidateCmd(), a.configPrintCmd())
}

func (a *app) configValidateCmd() *cobra.Command {
	return &cobra.Command{
		Use: "validate [FILE]", Short: "Check a config file and the ROTA_ variables", Args: atMostOne("FILE"),
		Long: `Checks that the config file has only known keys with valid values, and that all variables
which begin with ROTA_ are known. Without FILE, it checks the file that rota would use.`,
		Example:     "  rota config validate\n  rota config validate /etc/rota/config.json",
		Annotations: map[string]string{annotationUnchecked: "yes"},
		RunE: func(cmd *cobra.Command, args []string) error {
			path := a.settings.config
			if len(args) == 1 {
				path = args[0]
			}
			if err := validate(path, os.Environ()); err != nil {
				return err
			}
			if a.json() {
				return writeJSON(a.out, map[string]bool{"valid": true})
			}
			fmt.Fprintln(a.out, "valid")
			return nil
		},
	}
}

// validate checks a config file and variables against every command that has settings.
func validate(path string, environ []string) error {
	file, err := readConfig(path)
	if err != nil {
		return err
	}
	fresh := &app{}
	root := fresh.root()
	errs := []error{checkNames(root, file, environ), fill(root.PersistentFlags(), "ROTA_", file), fresh.settings.check()}
	for name, cmd := range sections(root) {
		section, err := sectionOf(file, name)
		if err == nil {
			err = fill(cmd.LocalNonPersistentFlags(), "ROTA_"+strings.ToUpper(name)+"_", section)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func (a *app) configPrintCmd() *cobra.Command {
	return &cobra.Command{
		Use: "print [SECTION]", Short: "Print the settings in effect, and where each comes from", Args: atMostOne("SECTION"),
		Long: `Prints the global settings, or those of the section server, agent or gateway: the value and
whether it comes from the config file, a variable, a flag or the default.`,
		Example: "  rota config print\n  rota config print server -o json",
		RunE: func(cmd *cobra.Command, args []string) error {
			file, err := readConfig(a.settings.config)
			if err != nil {
				return err
			}
			flags, prefix, keys := cmd.Root().PersistentFlags(), "ROTA_", file
			if len(args) == 1 {
				sub := sections(cmd.Root())[args[0]]
				if sub == nil {
					return usageErrorf("there is no section %q; the sections are server, agent and gateway", args[0])
				}
				if keys, err = sectionOf(file, args[0]); err != nil {
					return err
				}
				flags, prefix = sub.LocalNonPersistentFlags(), "ROTA_"+strings.ToUpper(args[0])+"_"
				if err := fill(flags, prefix, keys); err != nil {
					return err
				}
			}
			return a.printSettings(flags, prefix, keys)
		},
	}
}

// setting is a line of `rota config print`.
type setting struct {
	Name   string `json:"name"`
	Value  string `json:"value"`
	Source string `json:"source"`
}

func (a *app) printSettings(flags *pflag.FlagSet, prefix string, file map[string]json.RawMessage) error {
	var all []setting
	var rows [][]string
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Name == "help" {
			return
		}
		s := setting{f.Name, inEffect(f), "default"}
		_, variable := os.LookupEnv(variableOf(prefix, f.Name))
		_, key := file[f.Name]
		switch {
		case prefix == "ROTA_" && a.given[f.Name]:
			s.Source = "flag"
		case variable:
			s.Source = variableOf(prefix, f.Name)
		case key:
			s.Source = "config file"
		}
		all = append(all, s)
		rows = append(rows, []string{s.Name, s.Value, s.Source})
	})
	return a.printValue(all, []string{"name", "value", "source"}, rows)
}
