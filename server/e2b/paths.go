package e2b

import (
	"path"
	"strings"
	"unicode/utf8"
)

// home is what the directory of a trajectory is called in a sandbox.
const home = "/home/" + user

// inside returns a path of a sandbox relative to the directory of its trajectory, "" for that
// itself.
func inside(p string) (string, error) {
	if strings.ContainsRune(p, 0) || !utf8.ValidString(p) {
		return "", invalid("the path has a null byte, or is not UTF-8")
	}
	relative := p
	switch {
	case p == "~" || strings.HasPrefix(p, "~/"):
		relative = strings.TrimLeft(p[1:], "/")
	case strings.HasPrefix(p, "/"):
		clean := path.Clean(p)
		if clean != home && !strings.HasPrefix(clean, home+"/") {
			return "", invalid("%.200q is outside of %s, and there are no other files in a sandbox of rota", p, home)
		}
		relative = strings.TrimPrefix(clean[len(home):], "/")
	}
	relative = path.Clean(relative)
	if relative == ".." || strings.HasPrefix(relative, "../") {
		return "", invalid("%.200q leads out of %s", p, home)
	}
	if relative == "." {
		return "", nil
	}
	return relative, nil
}

// outside is the opposite of inside. Names on a disk can be any bytes, messages have text only:
// what is no text becomes U+FFFD.
func outside(relative string) string {
	return strings.ToValidUTF8(path.Join(home, relative), string(utf8.RuneError))
}

// workDir returns the working directory of a process: one of the sandbox, or one of the node.
func workDir(p string) (string, error) {
	if clean := path.Clean(p); strings.HasPrefix(p, "/") && clean != home && !strings.HasPrefix(clean, home+"/") {
		return clean, nil
	}
	return inside(p)
}
