// Package files reads and changes the files of a trajectory for its clients.
//
// What is in the directory belongs to commands that nobody trusts, and they go on changing it
// meanwhile. So nothing is done by a path of the machine: all begins at the open directory, and
// no link leads out of it (os.Root). And all is done with the rights of the directory's user, on
// a thread of its own with that file system user ID. The agent, which may be root, cannot be
// made to read or to write what the commands themselves could not, such as by a hard link to a
// file of somebody else. New files belong to the user without any change of owner.
//
// Only regular files are read and written: opening a pipe or a device can wait forever, or do
// something.
package files
