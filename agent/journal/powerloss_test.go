package journal_test

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"rota/agent/journal"
	"rota/internal/need"
	"rota/jepsen/disk"
)

// The test binary is also a process that writes to a journal: with modeWrite it
// accepts attempts and says which are durable, with modeRead it says which are
// there.
const (
	pathEnv   = "ROTA_TEST_JOURNAL"
	modeEnv   = "ROTA_TEST_JOURNAL_MODE"
	modeWrite = "write"
	modeRead  = "read"

	batches   = 8
	batchKeys = 90 // a frame of more than a sector
)

func TestMain(m *testing.M) {
	path := os.Getenv(pathEnv)
	if path == "" {
		os.Exit(m.Run())
	}
	if err := use(path, os.Getenv(modeEnv)); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

func use(path, mode string) error {
	j, err := journal.Open(path, "boot")
	if errors.Is(err, journal.ErrCorrupt) && mode == modeRead {
		fmt.Println("corrupt")
		return nil
	}
	if err != nil {
		return err
	}
	if mode == modeRead {
		fmt.Println(len(j.Attempts()))
		return nil
	}
	if err := j.SetIncarnation(7); err != nil {
		return err
	}
	for batch := range uint64(batches) {
		var accepted []uint64
		for i := range uint64(batchKeys) {
			accepted = append(accepted, batch*batchKeys+i)
		}
		if err := j.Accept(keys(accepted...)); err != nil {
			return err
		}
		fmt.Println((batch + 1) * batchKeys)
		if err := j.Report(keys(accepted[0])); err != nil {
			return err
		}
	}
	return nil
}

// An attempt that was accepted is known after the power was lost, unless the
// journal says that it is damaged: then the node begins anew and knows of none.
// It says so only if what was under way was torn.
func TestAcceptedAttemptsSurvivePowerLoss(t *testing.T) {
	need.FUSE(t)
	dir := t.TempDir()
	below, mountpoint := filepath.Join(dir, "below"), filepath.Join(dir, "disk")
	must(t, errors.Join(os.Mkdir(below, 0o700), os.Mkdir(mountpoint, 0o700)))
	fs, err := disk.Mount(below, mountpoint)
	must(t, err)
	t.Cleanup(func() { must(t, fs.Close()) })
	program := func(name, mode string) *exec.Cmd {
		cmd := exec.Command(os.Args[0])
		// With the race detector a process sleeps for a second when it ends.
		cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0", pathEnv+"="+filepath.Join(mountpoint, name), modeEnv+"="+mode)
		return cmd
	}
	whole, damaged := 0, 0
	for fsyncs := range batches + 3 {
		for seed := range uint64(4) {
			name := fmt.Sprintf("journal-%d-%d", fsyncs, seed)
			durable := cutPower(t, fs, program(name, modeWrite), fsyncs, seed)
			out, err := program(name, modeRead).Output()
			var attempts int
			switch _, scan := fmt.Sscan(string(out), &attempts); {
			case err != nil:
				t.Fatalf("fsync %d, seed %d: %v %s", fsyncs, seed, err, out)
			case scan != nil && seed == 0:
				t.Errorf("fsync %d: %s although nothing was torn", fsyncs, out)
			case scan != nil:
				damaged++
			case attempts != durable && attempts != durable+batchKeys:
				t.Errorf("fsync %d, seed %d: %d attempts, %d were accepted", fsyncs, seed, attempts, durable)
			default:
				whole++
			}
		}
	}
	t.Logf("%d journals were whole, %d damaged", whole, damaged)
}

// cutPower starts a writer and cuts the power when it has made so many fsyncs.
// It returns how many attempts the writer knew to be durable.
func cutPower(t *testing.T, fs *disk.FS, cmd *exec.Cmd, fsyncs int, seed uint64) (durable int) {
	t.Helper()
	release := fs.HangAfter(fsyncs, disk.Fsync)
	defer release()
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	for deadline := time.Now().Add(20 * time.Second); fs.Counters().Hanging == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("no fsync %d in 20 s", fsyncs+1)
		}
	}
	must(t, cmd.Process.Kill())
	_, err = fs.PowerLoss(seed, seed > 0)
	must(t, err)
	release()
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if _, err := fmt.Sscan(lines.Text(), &durable); err != nil {
			t.Fatalf("the writer says %q", lines.Text())
		}
	}
	_ = cmd.Wait()
	return durable
}
