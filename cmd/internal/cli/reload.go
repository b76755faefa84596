package cli

import (
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/cobra"
)

// reloads applies the log level of the config file whenever the process gets SIGHUP, until the
// command ends. What is wrong in the file is logged and changes nothing.
func (a *app) reloads(cmd *cobra.Command, logger hclog.Logger) {
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	go func() {
		defer signal.Stop(hup)
		for {
			select {
			case <-cmd.Context().Done():
				return
			case <-hup:
				a.reload(cmd, logger)
			}
		}
	}()
}

const logLevelFlag = "log-level"

func (a *app) reload(cmd *cobra.Command, logger hclog.Logger) {
	section := cmd.Annotations[annotationSection]
	if _, set := os.LookupEnv(variableOf("ROTA_"+strings.ToUpper(section)+"_", logLevelFlag)); set || a.given[logLevelFlag] {
		logger.Warn("SIGHUP changes nothing: the log level is set by a flag or a variable, which override the config file")
		return
	}
	file, err := readConfig(a.settings.config)
	if err == nil {
		err = checkNames(cmd.Root(), file, nil)
	}
	if err != nil {
		logger.Error("the config file is wrong; nothing changes", "error", err)
		return
	}
	keys, err := sectionOf(file, section)
	text := cmd.Flag(logLevelFlag).DefValue
	if raw, ok := keys[logLevelFlag]; ok {
		text = configText(raw)
	}
	level := hclog.LevelFromString(text)
	if err != nil || level == hclog.NoLevel {
		logger.Error("the config file has a log level that does not exist; nothing changes", "level", text)
		return
	}
	before := logger.GetLevel()
	logger.SetLevel(level)
	logger.Log(max(level, hclog.Info), "the config file was read again", "log_level", level, "before", before)
}
