package pid1

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// The files that say which users and groups a container has.
const (
	passwdPath = "/etc/passwd"
	groupPath  = "/etc/group"
)

// findAccount finds USER or USER:GROUP in the files of the container. A number needs no entry.
func findAccount(text string) (account, error) {
	passwd, err := readTable(passwdPath)
	if err != nil {
		return account{}, err
	}
	group, err := readTable(groupPath)
	if err != nil {
		return account{}, err
	}
	return accountOf(text, passwd, group)
}

// tableBytesMax is the most that such a file has.
const tableBytesMax = 1 << 20

// readTable reads such a file; one that is not there is empty. Commands may have put anything in
// its place: a pipe on which reading would wait for ever, or a file that is larger than the
// memory of the machine.
func readTable(path string) (string, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOCTTY, 0)
	if err != nil {
		return "", nil //nolint:nilerr // an image need not have users
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil || !st.Mode().IsRegular() {
		return "", fmt.Errorf("%s of the container is not a regular file", path)
	}
	b, err := io.ReadAll(io.LimitReader(f, tableBytesMax+1))
	if err != nil {
		return "", fmt.Errorf("read %s of the container: %w", path, err)
	}
	if len(b) > tableBytesMax {
		return "", fmt.Errorf("%s of the container has more than %d bytes", path, tableBytesMax)
	}
	return string(b), nil
}

// accountOf is findAccount with the text of both files.
func accountOf(text, passwd, group string) (account, error) {
	user, groupName, hasGroup := strings.Cut(text, ":")
	if user == "" {
		user = "0"
	}
	a := account{name: user, home: "/"}
	known := false
	uid, number := parseID(user)
	for f := range entries(passwd, 6) {
		id, ok := parseID(f[2])
		gid, okGroup := parseID(f[3])
		if ok && okGroup && (f[0] == user || number && id == uid) {
			a.uid, a.gid, a.name, a.home, known = id, gid, f[0], f[5], true
			break
		}
	}
	switch {
	case !known && !number:
		return a, fmt.Errorf("the container has no user %q: name one of its /etc/passwd, or a number", user)
	case !known:
		a.uid = uid
	}
	if a.home == "" {
		a.home = "/"
	}
	if hasGroup {
		var err error
		a.gid, err = groupID(groupName, group)
		return a, err
	}
	for f := range entries(group, 4) {
		if id, ok := parseID(f[2]); ok && id != a.gid && slices.Contains(strings.Split(f[3], ","), a.name) {
			a.groups = append(a.groups, id)
		}
	}
	return a, nil
}

func groupID(name, group string) (uint32, error) {
	for f := range entries(group, 3) {
		if id, ok := parseID(f[2]); ok && f[0] == name {
			return id, nil
		}
	}
	if id, ok := parseID(name); ok {
		return id, nil
	}
	return 0, fmt.Errorf("the container has no group %q: name one of its /etc/group, or a number", name)
}

// entries are the lines of such a file that have at least so many fields.
func entries(text string, fields int) func(func([]string) bool) {
	return func(yield func([]string) bool) {
		for line := range strings.Lines(text) {
			if f := strings.Split(strings.TrimSpace(line), ":"); len(f) >= fields && !yield(f) {
				return
			}
		}
	}
}

func parseID(text string) (uint32, bool) {
	n, err := strconv.ParseUint(text, 10, 31)
	return uint32(n), err == nil
}
