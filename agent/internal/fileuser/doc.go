// Package fileuser accesses files with the rights of another user, for an agent that runs as root and
// may reach more than the user it acts for.
package fileuser
