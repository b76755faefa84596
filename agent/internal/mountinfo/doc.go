// Package mountinfo reads what is mounted in the mount namespace of this process, from
// /proc/self/mountinfo: the directories of KV caches and the layers of snapshots ask different
// things of it, and escapes and optional fields should be read at one place.
package mountinfo
