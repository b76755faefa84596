// Package containertest has what tests of sandboxes need: a containerd of their own, an image that
// no registry knows, and the program rota-init.
package containertest
