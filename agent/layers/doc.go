// Package layers keeps snapshots of directories, and lets other directories begin with one.
//
// A directory that nothing writes to becomes a layer: it is moved aside, and an overlay file system
// takes its place, with the layer below and an empty one on top. A snapshot is a list of layers, and
// what begins with it is an overlay with the same ones below. So neither copies a file, however many
// there are. Layers of one user are shown to another by an ID-mapped mount. A layer is kept for as
// long as a snapshot or a directory has it.
//
// Where the kernel or the rights of the process do not allow that, files are copied, by reflinks
// where the file system has them. A directory of too many layers is copied, too.
//
// What a directory and a snapshot consist of is written down before it is so: after a crash each is
// either as before or as after, and Open mounts what is not mounted and removes what nothing has. The
// files of a snapshot are synced some seconds later: one that a loss of power overtakes is lost, and
// never a snapshot of files that are cut off.
package layers
