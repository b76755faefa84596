package container

import (
	"math"
	"strings"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// allowedCalls are the system calls that programs in a container may make. Those that are missing
// fail with EPERM: of modules, tracing of the kernel, keys, clocks, swap, io_uring, user faults,
// other namespaces, and the new interface of mounts. mount, umount2, chroot and ptrace need
// capabilities, or reach only processes of the same user; rota-init uses the first two.
const allowedCalls = `
accept accept4 access alarm arch_prctl bind brk cachestat capget capset chdir chmod chown
chroot clock_getres clock_gettime clock_nanosleep clone clone3 close close_range connect
copy_file_range creat dup dup2 dup3 epoll_create epoll_create1 epoll_ctl epoll_pwait
epoll_pwait2 epoll_wait eventfd eventfd2 execve execveat exit exit_group faccessat faccessat2
fadvise64 fallocate fchdir fchmod fchmodat fchmodat2 fchown fchownat fcntl fdatasync fgetxattr
flistxattr flock fork fremovexattr fsetxattr fstat fstatfs fsync ftruncate futex futex_requeue
futex_wait futex_waitv futex_wake futimesat get_robust_list get_thread_area getcpu getcwd
getdents getdents64 getegid geteuid getgid getgroups getitimer getpeername getpgid getpgrp
getpid getppid getpriority getrandom getresgid getresuid getrlimit getrusage getsid
getsockname getsockopt gettid gettimeofday getuid getxattr getxattrat inotify_add_watch
inotify_init inotify_init1 inotify_rm_watch io_cancel io_destroy io_getevents io_pgetevents
io_setup io_submit ioctl ioprio_get ioprio_set kill landlock_add_rule landlock_create_ruleset
landlock_restrict_self lchown lgetxattr link linkat listen listxattr listxattrat llistxattr
lremovexattr lseek lsetxattr lstat madvise map_shadow_stack membarrier memfd_create
memfd_secret mincore mkdir mkdirat mknod mknodat mlock mlock2 mlockall mmap mount mprotect
mq_getsetattr mq_notify mq_open mq_timedreceive mq_timedsend mq_unlink mremap mseal msgctl
msgget msgrcv msgsnd msync munlock munlockall munmap nanosleep newfstatat open openat openat2
pause pidfd_open pidfd_send_signal pipe pipe2 pkey_alloc pkey_free pkey_mprotect poll ppoll
prctl pread64 preadv preadv2 prlimit64 process_mrelease process_vm_readv process_vm_writev
pselect6 ptrace pwrite64 pwritev pwritev2 read readahead readlink readlinkat readv recvfrom
recvmmsg recvmsg remap_file_pages removexattr removexattrat rename renameat renameat2
restart_syscall rmdir rseq rt_sigaction rt_sigpending rt_sigprocmask rt_sigqueueinfo
rt_sigreturn rt_sigsuspend rt_sigtimedwait rt_tgsigqueueinfo sched_get_priority_max
sched_get_priority_min sched_getaffinity sched_getattr sched_getparam sched_getscheduler
sched_rr_get_interval sched_setaffinity sched_setattr sched_setparam sched_setscheduler
sched_yield seccomp select semctl semget semop semtimedop sendfile sendmmsg sendmsg sendto
set_robust_list set_thread_area set_tid_address setfsgid setfsuid setgid setgroups setitimer
setpgid setpriority setregid setresgid setresuid setreuid setrlimit setsid setsockopt setuid
setxattr setxattrat shmat shmctl shmdt shmget shutdown sigaltstack signalfd signalfd4
socketpair splice stat statfs statx symlink symlinkat sync sync_file_range syncfs sysinfo tee
tgkill time timer_create timer_delete timer_getoverrun timer_gettime timer_settime
timerfd_create timerfd_gettime timerfd_settime times tkill truncate umask umount2 uname unlink
unlinkat utime utimensat utimes vfork vmsplice wait4 waitid write writev
`

// personalities that a program may take: those of Linux and of 32 bits, with and without fixed
// addresses, and the question which one it has.
var personalities = []uint64{0, 0x8, 0x20000, 0x20008, 0xffffffff}

// seccomp is the filter of a container.
func seccomp() *specs.LinuxSeccomp {
	eperm := uint(unix.EPERM)
	f := &specs.LinuxSeccomp{
		DefaultAction: specs.ActErrno, DefaultErrnoRet: &eperm,
		Syscalls: []specs.LinuxSyscall{{Names: strings.Fields(allowedCalls), Action: specs.ActAllow}},
	}
	// A filter compares 64 bits of an argument, and the kernel takes 32 of these: without the mask,
	// a family with a bit above them would be another one to the filter.
	allow := func(name string, value uint64) {
		f.Syscalls = append(f.Syscalls, specs.LinuxSyscall{
			Names: []string{name}, Action: specs.ActAllow,
			Args: []specs.LinuxSeccompArg{{Index: 0, Value: math.MaxUint32, ValueTwo: value, Op: specs.OpMaskedEqual}},
		})
	}
	for _, p := range personalities {
		allow("personality", p)
	}
	for family := range uint64(unix.AF_MAX) {
		if family != unix.AF_ALG && family != unix.AF_VSOCK { // they reach the kernel and the hypervisor
			allow("socket", family)
		}
	}
	return f
}
