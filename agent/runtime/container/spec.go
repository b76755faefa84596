package container

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"rota/agent/runtime/container/initcall"
	"rota/agent/runtime/container/pid1"
)

// commandCapabilities are those that commands of root have: what it takes to install packages,
// and to change users.
var commandCapabilities = []string{
	"CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_FSETID", "CAP_KILL", "CAP_NET_BIND_SERVICE",
	"CAP_SETFCAP", "CAP_SETGID", "CAP_SETUID",
}

// initCapabilities are what rota-init has besides, and takes from commands.
var initCapabilities = []string{"CAP_SETPCAP", "CAP_SYS_ADMIN", "CAP_SYS_CHROOT"}

// maskedPaths and readonlyPaths tell of the machine, or change it.
var (
	maskedPaths = []string{
		"/proc/acpi", "/proc/asound", "/proc/interrupts", "/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/sched_debug",
		"/proc/scsi", "/proc/timer_list", "/proc/timer_stats", "/sys/devices/virtual/powercap", "/sys/firmware",
	}
	readonlyPaths = []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"}
)

// Memory of a sandbox that outlives the attempt that took it, and its limit, is bounded: the file
// systems in memory with their files, terminals and, by systemV, what System V calls make without a process.
const (
	sharedMemoryMiB = 64 // of /dev, of /dev/shm, and of /run if the root is read-only
	temporaryMiB    = 256
	filesPerMiB     = 256   // of a file system in memory: each takes some 1 KiB of the kernel
	terminals       = "256" // the kernel has 3,072 for all containers
)

// systemV bounds the queues of messages, and semaphores by four numbers: those of a set, of the sandbox, of
// a call, and the sets of the sandbox.
var systemV = map[string]string{"kernel.shm_rmid_forced": "1", "kernel.msgmni": "32", "kernel.sem": "250 32000 32 128"}

// descriptorsMax bounds the open files of a process, where the machine allows as many.
const descriptorsMax = 1 << 16

// descriptors returns that bound. A container cannot have more than this process.
func descriptors() uint64 {
	var own unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &own); err != nil {
		return 1024
	}
	return min(descriptorsMax, own.Max)
}

// paths are what the node mounts into a sandbox.
type paths struct {
	init, socket, cores, home, hosts string
}

// A process of containerd, the shim, watches a container. Sandboxes share watchers, as one for each
// takes more memory than the sandbox, and time to start. They share several, as the sandboxes of one
// that dies end with it.
const (
	watchers     = 8
	watcherGroup = "io.containerd.runc.v2.group" // annotation of the runtime io.containerd.runc.v2
)

// watchedBy names the watcher of a sandbox.
func watchedBy(owner string, trajectory uint64) map[string]string {
	return map[string]string{watcherGroup: fmt.Sprintf("rota-%s-%d", owner, trajectory%watchers)}
}

// spec is what runc is to make.
func spec(s *Spec, owner, cgroup string, p paths) *specs.Spec {
	caps := append(append([]string{}, commandCapabilities...), initCapabilities...)
	files := descriptors()
	out := &specs.Spec{
		Version:  "1.0.2",
		Hostname: "trajectory-" + strconv.FormatUint(s.Trajectory, 10),
		Root:     &specs.Root{Path: "rootfs", Readonly: s.ReadOnlyRoot},
		Process: &specs.Process{
			Args: []string{pid1.Program}, Cwd: "/", Env: []string{"GOMAXPROCS=2"}, NoNewPrivileges: true,
			Capabilities: &specs.LinuxCapabilities{Bounding: caps, Effective: caps, Permitted: caps},
			Rlimits:      []specs.POSIXRlimit{{Type: "RLIMIT_NOFILE", Hard: files, Soft: files}, {Type: "RLIMIT_CORE"}},
		},
		Mounts:      mounts(s, p),
		Annotations: watchedBy(owner, s.Trajectory),
		Linux: &specs.Linux{
			CgroupsPath: cgroup, Seccomp: seccomp(), MaskedPaths: maskedPaths, ReadonlyPaths: readonlyPaths,
			Sysctl:    systemV,
			Resources: &specs.LinuxResources{Devices: []specs.LinuxDeviceCgroup{{Allow: false, Access: "rwm"}}},
			Namespaces: []specs.LinuxNamespace{
				{Type: specs.PIDNamespace}, {Type: specs.MountNamespace}, {Type: specs.IPCNamespace}, {Type: specs.UTSNamespace},
			},
		},
	}
	if !s.HostNetwork {
		out.Linux.Namespaces = append(out.Linux.Namespaces, specs.LinuxNamespace{Type: specs.NetworkNamespace})
	}
	return out
}

func mounts(s *Spec, p paths) []specs.Mount {
	out := []specs.Mount{
		{Destination: "/proc", Type: "proc", Source: "proc", Options: []string{"nosuid", "noexec", "nodev"}},
		tmpfs("/dev", sharedMemoryMiB, "nosuid", "strictatime", "mode=755"),
		{Destination: "/dev/pts", Type: "devpts", Source: "devpts", Options: []string{"nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5", "max=" + terminals}},
		tmpfs("/dev/shm", sharedMemoryMiB, "nosuid", "noexec", "nodev", "mode=1777"),
		{Destination: "/dev/mqueue", Type: "mqueue", Source: "mqueue", Options: []string{"nosuid", "noexec", "nodev"}},
		{Destination: "/sys", Type: "sysfs", Source: "sysfs", Options: []string{"nosuid", "noexec", "nodev", "ro"}},
		bind(p.init, pid1.Program, "ro", "nosuid", "nodev"),
		bind(p.socket, pid1.SocketDir, "rw", "nosuid", "nodev", "noexec"),
		bind(p.cores, initcall.Cores, "ro", "nosuid", "nodev", "noexec"),
		bind(p.home, initcall.Workspace, "rw", "nosuid", "nodev"),
		bind(p.hosts, "/etc/hosts", "ro", "nosuid", "nodev", "noexec"),
	}
	if s.HostNetwork {
		if path, err := filepath.EvalSymlinks("/etc/resolv.conf"); err == nil {
			if _, err := os.Stat(path); err == nil {
				out = append(out, bind(path, "/etc/resolv.conf", "ro", "nosuid", "nodev", "noexec"))
			}
		}
	}
	if s.ReadOnlyRoot {
		for _, dir := range []string{"/tmp", "/var/tmp"} {
			out = append(out, tmpfs(dir, temporaryMiB, "nosuid", "nodev", "mode=1777"))
		}
		out = append(out, tmpfs("/run", sharedMemoryMiB, "nosuid", "nodev", "mode=755"))
	}
	return out
}

func tmpfs(at string, mib int, options ...string) specs.Mount {
	bounds := []string{fmt.Sprintf("size=%dm", mib), fmt.Sprintf("nr_inodes=%d", mib*filesPerMiB)}
	return specs.Mount{Destination: at, Type: "tmpfs", Source: "tmpfs", Options: append(bounds, options...)}
}

func bind(from, at string, options ...string) specs.Mount {
	return specs.Mount{Destination: at, Type: "bind", Source: from, Options: append([]string{"rbind", "rprivate"}, options...)}
}
