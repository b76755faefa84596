// Package deploy has no code. Its tests check what is deployed: they render the Helm chart
// (with helm too, if it is there), read the compose file, and build the Debian package.
package deploy
