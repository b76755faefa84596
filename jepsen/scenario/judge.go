package scenario

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"rota/jepsen/check"
	"rota/jepsen/cluster"
	"rota/jepsen/history"
	"rota/jepsen/report"
)

// stop ends the cluster, so that what servers have on disk can be read.
func (r *run) stop() (logs []history.Log, err error) {
	for _, f := range slices.Backward(r.close) {
		err = errors.Join(err, f())
	}
	if r.world.Cluster == nil {
		return nil, err
	}
	if r.Compact {
		err = errors.Join(err, r.provesCompaction())
	}
	for _, m := range r.world.Cluster.Servers {
		dir := m.DataDir
		if r.world.Disks[m.Name] != nil {
			dir = backingOf(dir)
		}
		log, failed := cluster.ReadLog(dir)
		log.Server = m.Name
		if failed == nil && len(log.Entries) > 0 {
			logs = append(logs, log)
		}
		// A server whose files have rotted may hold what nobody can read, as long as
		// it does not use it.
		if failed != nil && !r.world.Rotten[m.Name] {
			err = errors.Join(err, failed)
		}
	}
	return logs, err
}

// judge holds what was seen against the promises, and stores everything.
func (r *run) judge(logs []history.Log, broken error) (*report.Report, error) {
	r.Log("%6.1f s  checking", time.Since(r.started).Seconds())
	record := r.takeOut(logs)
	rep := report.New(record, check.Run(record, r.Limits))
	rep.About, rep.Started = r.About, r.started
	rep.Versions = report.Versions{Rota: versionOf(r.Binary), Old: versionOf(r.OtherBinary), Go: runtime.Version(), Kernel: kernel()}
	if broken != nil {
		rep.Broken = broken.Error()
	}
	rep.Dir = filepath.Join(r.Store, fmt.Sprintf("%s-%s-%d", r.Name, r.started.Format("20060102-150405"), r.Seed))
	if err := errors.Join(record.Save(rep.Dir), rep.Save(), r.keepLogs(rep)); err != nil {
		return nil, fmt.Errorf("store the report: %w", err)
	}
	return rep, nil
}

// keepLogs stores what members and supervisors wrote, if something went wrong.
func (r *run) keepLogs(rep *report.Report) error {
	if r.world.Cluster == nil || rep.Violations()+len(rep.Void()) == 0 {
		return nil
	}
	var errs []error
	c := r.world.Cluster
	for _, m := range slices.Concat(c.Members(), c.Generators, c.Gateways) {
		text, err := m.Log()
		errs = append(errs, err, os.WriteFile(filepath.Join(rep.Dir, m.Name+".log"), []byte(text), 0o644))
	}
	for _, m := range c.Agents {
		text, err := os.ReadFile(filepath.Join(m.DataDir, "runtime", "supervisor.log"))
		switch {
		case err == nil:
			errs = append(errs, os.WriteFile(filepath.Join(rep.Dir, m.Name+"-supervisor.log"), text, 0o644))
		case !errors.Is(err, fs.ErrNotExist):
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// versionOf asks a binary what it is.
func versionOf(binary string) string {
	if binary == "" {
		return ""
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, binary, "version").Output()
	if err != nil {
		return err.Error()
	}
	// The second line has the version below its title.
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	return strings.Join(strings.Fields(lines[len(lines)-1]), " ")
}

func kernel() string {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return err.Error()
	}
	return unix.ByteSliceToString(name.Sysname[:]) + " " + unix.ByteSliceToString(name.Release[:])
}
