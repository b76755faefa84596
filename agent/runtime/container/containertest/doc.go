// Package containertest has what tests of sandboxes need: a containerd of their own, an image that
// no registry knows, a registry of images on this machine, and the program rota-init.
package containertest
