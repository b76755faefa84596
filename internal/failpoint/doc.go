// Package failpoint lets a test of faults act in a window that no kill from
// outside would find: between two instructions, and most of all between two
// writes to disk.
//
// Each window has a name, and the code calls Hit with it. Built as usual that is
// nothing, and costs nothing. Built with -tags faults, a process whose
// environment names a folder in ROTA_FAILPOINTS looks for a file of that name
// there, once for each Hit, and does what the file says. The file is renamed
// before, so that it acts once and whoever laid it there knows that it did:
//
//	failpoint.Arm(dir, failpoint.LogAppended, "kill")
//	...
//	failpoint.Acted(dir, failpoint.LogAppended) // true
package failpoint
