package cli

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/pflag"

	"rota/server/audit"
)

// auditFlags are the flags of the audit log.
type auditFlags struct {
	path  string
	bytes size
	files int
}

func (f *auditFlags) addTo(fs *pflag.FlagSet) {
	fs.StringVar(&f.path, "audit", "", "file for the audit log: a JSON line for each call that changes something or is refused; SIGHUP opens it again")
	fs.Var(&f.bytes, "audit-bytes-max", "size at which the file of --audit is renamed to FILE.1 (default 100M)")
	fs.IntVar(&f.files, "audit-files", audit.FilesDefault, "how many renamed files of --audit are kept")
}

// during does something while there is an audit log, if one is asked for. SIGHUP opens its file
// again.
func (f *auditFlags) during(ctx context.Context, logger hclog.Logger, do func(*audit.Log) error) error {
	if f.path == "" {
		return do(nil)
	}
	if f.files < 1 {
		return usageErrorf("--audit-files must be at least 1")
	}
	log, err := audit.Open(audit.Options{Path: f.path, BytesMax: int64(f.bytes), Files: f.files, Logger: logger.Named("audit")})
	if err != nil {
		return err
	}
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-hangups:
				_ = log.Reopen() // the log itself says what is wrong
			case <-ctx.Done():
				return
			}
		}
	}()
	err = do(log)
	cancel()
	<-ended
	signal.Stop(hangups)
	return errors.Join(err, log.Close())
}
