package speak

import (
	"cmp"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Connect connects to the witness that the environment names. The connection ends with the
// process, unless it is closed before.
func Connect() (fd int, err error) {
	path := os.Getenv("WITNESS")
	if fd, err = unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0); err != nil {
		return 0, err
	}
	if err := unix.Connect(fd, &unix.SockaddrUnix{Name: path}); err != nil {
		return 0, fmt.Errorf("connect to the witness at %q: %w", path, err)
	}
	return fd, nil
}

// Introduce says which execution this is, and returns once that is recorded.
func Introduce(witness int) error {
	cpus, err := Affinity()
	if err != nil {
		return err
	}
	hello := []string{
		os.Getenv("ROTA_FENCING_TOKEN"), os.Getenv("ROTA_NODE"), os.Getenv("WITNESS_REQUEST"),
		cpus, cmp.Or(os.Getenv("ROTA_CORES"), "0"), cmp.Or(os.Getenv("ROTA_GPUS"), Nothing), quotaKeys(), os.Getenv("WITNESS_ASKED"),
	}
	return Begin(witness, hello)
}

// Begin sends the fields of a hello, and returns once the witness has recorded it.
func Begin(witness int, hello []string) error {
	if err := Say(witness, strings.Join(hello, " ")+"\n"); err != nil {
		return err
	}
	var ack [1]byte
	for {
		switch n, err := unix.Read(witness, ack[:]); {
		case err == unix.EINTR:
		case err != nil:
			return fmt.Errorf("read from the witness: %w", err)
		case n == 0:
			return fmt.Errorf("the witness is gone")
		default:
			return nil
		}
	}
}

// Nothing stands for a list of none.
const Nothing = "-"

// quotaKeys lists the keys of quotas that this process may use.
func quotaKeys() string {
	var keys []string
	for _, v := range os.Environ() {
		if key, is := strings.CutPrefix(v, "ROTA_QUOTA_"); is {
			keys = append(keys, key)
		}
	}
	return cmp.Or(strings.Join(keys, ","), Nothing)
}

// Affinity lists the CPUs that the kernel lets this process run on, "-" on a
// node that does not pin.
func Affinity() (string, error) {
	if os.Getenv("ROTA_CPUS") == "" {
		return Nothing, nil
	}
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return "", fmt.Errorf("read the CPU affinity: %w", err)
	}
	var cpus []string
	for cpu := 0; len(cpus) < set.Count(); cpu++ {
		if set.IsSet(cpu) {
			cpus = append(cpus, strconv.Itoa(cpu))
		}
	}
	return strings.Join(cpus, ","), nil
}

// Say sends a text to the witness, all of it.
func Say(witness int, text string) error {
	for sent := 0; sent < len(text); {
		n, err := unix.Write(witness, []byte(text[sent:]))
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return fmt.Errorf("write to the witness: %w", err)
		}
		sent += n
	}
	return nil
}
