// Package signals names the signals that clients may send to actions. Clients, servers, agents
// and supervisors are of one mind about them, and the numbers are those of Linux, whatever the
// system of the client is.
package signals
