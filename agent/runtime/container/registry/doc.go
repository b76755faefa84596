// Package registry reads container images from the registries that an operator allows, by the
// protocol of OCI distribution. It stores nothing.
//
// What a registry says is not trusted: an image is checked before its layers are downloaded. Its
// manifest is small and of a known type, its layers are of types that containerd unpacks, and all
// of them together are not larger than the operator allows. Digests are checked by whoever stores
// the layers; those of the manifest and the configuration are checked here.
//
// Requests are tried again a few times, later each time. Errors are sentences for the owner of a
// trajectory. They have no URLs, since a redirect may lead to one that is signed.
package registry
