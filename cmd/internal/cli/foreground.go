package cli

import (
	"errors"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// controllingTerminal is the terminal that a shell has given to this process, as its standard input.
// One process group at a time is the foreground of a terminal: it may read the terminal, and gets
// Ctrl-C, Ctrl-Z and Ctrl-\.
type controllingTerminal struct{ fd int }

// openTerminal returns nil unless standard input, output and error are the terminal of this process.
// With a pipe, as to less, another process of the job may need the terminal, and would be in the
// background.
func openTerminal() *controllingTerminal {
	for _, fd := range []int{syscall.Stdin, syscall.Stdout, syscall.Stderr} {
		if _, err := (&controllingTerminal{fd}).foreground(); err != nil {
			return nil
		}
	}
	return &controllingTerminal{syscall.Stdin}
}

func (t *controllingTerminal) foreground() (pgrp int, err error) {
	return unix.IoctlGetInt(t.fd, unix.TIOCGPGRP)
}

// pass makes a process group the foreground if another one is the foreground now. A job in the
// background must not take the terminal from others.
func (t *controllingTerminal) pass(from, to int) {
	if now, err := t.foreground(); err != nil || now != from {
		return
	}
	// The kernel stops a group in the background that does this, unless it ignores the signal.
	signal.Ignore(syscall.SIGTTOU)
	defer signal.Reset(syscall.SIGTTOU)
	_ = unix.IoctlSetPointerInt(t.fd, unix.TIOCSPGRP, to)
}

// lend gives the terminal to a command for as long as it runs, and returns what takes it back once
// the command has ended. When the command is stopped, by Ctrl-Z or because it reads the terminal in
// the background, this process stops too, so that the shell notices. When the shell continues this
// process, the command is continued, unless over says that it may not run any more until lost is
// closed.
func (t *controllingTerminal) lend(pid int, over func() bool, lost <-chan struct{}) (takeBack func()) {
	own := unix.Getpgrp()
	t.pass(own, pid)
	_ = syscall.Kill(-pid, syscall.SIGCONT) // it is stopped if it has read the terminal before
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		for stopped(pid) {
			t.pass(pid, own)
			_ = syscall.Kill(-pid, syscall.SIGSTOP) // nor may others of its group run on, whatever they do of SIGTSTP
			stopJob()
			if !isOver(over, lost) {
				t.pass(own, pid)
				_ = syscall.Kill(-pid, syscall.SIGCONT)
			}
		}
	}()
	return func() {
		<-watched
		t.pass(pid, own)
	}
}

// renewalPoll is how often a lease that has run out is looked at: an answer that renews it may have
// come while this process was stopped.
const renewalPoll = 50 * time.Millisecond

// isOver waits until a lease is known to be lost, or turns out not to be over.
func isOver(over func() bool, lost <-chan struct{}) bool {
	for over() {
		select {
		case <-lost:
			return true
		case <-time.After(renewalPoll):
		}
	}
	return false
}

// stopped waits until a child is stopped. It returns false when the child has ended.
func stopped(pid int) bool {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WSTOPPED, nil)
		if !errors.Is(err, unix.EINTR) {
			return err == nil
		}
	}
}

// stopPatience is how long a job may take to stop. A job that no shell could continue does not stop.
const stopPatience = time.Second

// stopJob stops the job that this process is a part of, as Ctrl-Z would, and returns when a shell has
// continued the job.
func stopJob() {
	continued := make(chan os.Signal, 1)
	signal.Notify(continued, syscall.SIGCONT)
	defer signal.Stop(continued)
	_ = syscall.Kill(0, syscall.SIGTSTP)
	select {
	case <-continued:
	case <-time.After(stopPatience):
	}
}
