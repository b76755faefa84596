package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// settings are the flags that every command has.
type settings struct {
	config    string
	addr      string // servers, comma-separated
	namespace string
	output    string
	ca        string
	cert      string
	key       string
	tokenFile string
	cluster   string
	timeout   time.Duration
}

func (s *settings) addTo(f *pflag.FlagSet) {
	f.StringVar(&s.config, "config", "", "config file (default ~/.config/rota/config.json; ROTA_CONFIG)")
	f.StringVar(&s.addr, "addr", "127.0.0.1:7400", "servers to talk to, host:port[,host:port...] (ROTA_ADDR)")
	f.StringVarP(&s.namespace, "namespace", "n", "", "namespace of actions and trajectories (ROTA_NAMESPACE)")
	f.StringVarP(&s.output, "output", "o", "table", "output: table or json (ROTA_OUTPUT)")
	f.StringVar(&s.ca, "ca", "", "CA certificate, PEM; turns TLS on (ROTA_CA)")
	f.StringVar(&s.cert, "cert", "", "certificate, PEM (ROTA_CERT)")
	f.StringVar(&s.key, "key", "", "private key, PEM (ROTA_KEY)")
	f.StringVar(&s.tokenFile, "token-file", "", "private file with a token or JWT, instead of --cert and --key (ROTA_TOKEN_FILE; or ROTA_TOKEN has the token itself)")
	f.StringVar(&s.cluster, "cluster-id", "", "ID of the cluster that you mean, as in rota operator status: warn if another one answers (ROTA_CLUSTER_ID)")
	f.DurationVar(&s.timeout, "request-timeout", 15*time.Second, "time limit for one request, more than 0 (ROTA_REQUEST_TIMEOUT)")
}

func (s *settings) check() error {
	if s.output != "table" && s.output != "json" {
		return usageErrorf("unknown output %q; use -o table or -o json", s.output)
	}
	if s.timeout <= 0 {
		return usageErrorf("--request-timeout is %v, and must not be negative or zero", s.timeout)
	}
	if n := countSet(s.cert, s.key); n == 1 || n == 2 && s.ca == "" {
		return usageErrorf("--ca, --cert and --key go together: give all of them or none; with a token give --ca only")
	}
	return nil
}

func countSet(values ...string) int {
	n := 0
	for _, v := range values {
		if v != "" {
			n++
		}
	}
	return n
}

// resolve fills in flags that were not given: first from variables, then from
// the config file. The global flags are ROTA_NAME and "name"; those of server
// and agent are ROTA_SERVER_NAME and "name" inside "server". Other commands'
// own flags come from the command line only: a running action has variables
// such as ROTA_CORES, which must not leak into the actions it submits.
func resolve(cmd *cobra.Command, configFlag string) error {
	if cmd.Annotations[annotationUnchecked] != "" {
		return nil
	}
	file, err := readConfig(configFlag)
	if err != nil {
		return err
	}
	if err := checkNames(cmd.Root(), file, os.Environ()); err != nil {
		return err
	}
	if err := fill(cmd.Root().PersistentFlags(), "ROTA_", file); err != nil {
		return err
	}
	section := cmd.Annotations[annotationSection]
	if section == "" {
		return nil
	}
	sub, err := sectionOf(file, section)
	if err != nil {
		return err
	}
	return fill(cmd.LocalNonPersistentFlags(), "ROTA_"+strings.ToUpper(section)+"_", sub)
}

// sectionOf returns a section of a config file, empty if it has none.
func sectionOf(file map[string]json.RawMessage, name string) (map[string]json.RawMessage, error) {
	section := map[string]json.RawMessage{}
	if raw, ok := file[name]; ok {
		if err := json.Unmarshal(raw, &section); err != nil {
			return nil, usageErrorf("config file: %q must be an object: %w", name, err)
		}
	}
	return section, nil
}

// annotationUnchecked: the command reports by itself what is wrong with settings.
const annotationUnchecked = "unchecked"

// annotationSection names the part of the config file with a command's flags.
const annotationSection = "section"

func fill(flags *pflag.FlagSet, prefix string, file map[string]json.RawMessage) error {
	var errs []error
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Changed {
			return
		}
		name := variableOf(prefix, f.Name)
		if v, ok := os.LookupEnv(name); ok {
			if err := flags.Set(f.Name, v); err != nil {
				errs = append(errs, usageErrorf("%s: %w", name, flagError(err)))
			}
			return
		}
		if raw, ok := file[f.Name]; ok {
			if err := flags.Set(f.Name, configText(raw)); err != nil {
				errs = append(errs, usageErrorf("config file: %s: %w", f.Name, flagError(err)))
			}
		}
	})
	return errors.Join(errs...)
}

// configText writes a JSON value as a flag would be given.
func configText(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	var list []string
	if json.Unmarshal(raw, &list) == nil {
		return strings.Join(list, ",")
	}
	return string(raw)
}

// readConfig reads the given config file, or the default file if it exists. An empty file has no settings.
func readConfig(path string) (map[string]json.RawMessage, error) {
	if path == "" {
		path = os.Getenv("ROTA_CONFIG")
	}
	optional := path == ""
	if optional {
		dir, err := os.UserConfigDir()
		if err != nil {
			return nil, nil // no home directory: no default file
		}
		path = filepath.Join(dir, "rota", "config.json")
	}
	raw, err := os.ReadFile(path)
	if optional && errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if optional && err != nil {
		return nil, usageErrorf("the default config file cannot be read: %w\nName another one with --config or ROTA_CONFIG; /dev/null has no settings", err)
	}
	if err != nil {
		return nil, usageErrorf("config file: %w", err)
	}
	if len(bytes.TrimSpace(raw)) == 0 {
		return nil, nil
	}
	var file map[string]json.RawMessage
	if err := json.Unmarshal(raw, &file); err != nil {
		return nil, usageErrorf("config file %s: %w", path, err)
	}
	return file, nil
}
