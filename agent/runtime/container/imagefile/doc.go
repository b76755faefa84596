// Package imagefile writes archives of images with one layer, for tests and benchmarks. An archive is
// an OCI image layout that `docker load` takes too, so that containerd, rota and Docker can have the
// same image without a registry.
package imagefile
