// Package audit writes the audit log: a file of JSON lines, one for each call that changed
// something or was refused.
//
// Calls hand over their line and go on; one goroutine writes. The lines that wait are bounded, and
// a call waits when there are too many: an audit log with gaps proves nothing, so a disk that is
// full or hangs stops what would have to be written down, and not the writing down. The file is
// renamed when it is too large, and opened again when it is told to, for logrotate.
package audit
