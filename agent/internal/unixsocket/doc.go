// Package unixsocket opens the sockets on which an agent serves the processes of its
// machine. The permissions of the socket are all that decides who may connect, so there is
// one way to set them.
package unixsocket
