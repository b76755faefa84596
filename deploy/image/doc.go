// Command image writes a container image of rota as a file, without a container engine, a
// registry or a base image: one layer with the static binary, a folder for data and the
// names of two users. Podman, Docker, containerd and skopeo read it.
//
//	make build && go run ./deploy/image -binary bin/rota -out rota.tar -tag rota:0.1.0
//
// The file is an OCI image layout in a tar, with the manifest.json of "docker save" beside
// it, so that "docker load" takes it too. It depends on the binary, the tag and the version
// only: the same build gives the same bytes. The image runs as the user 65532, which may
// run a server and a gateway. An agent that runs commands of others wants a machine, not a
// container: see deploy/helm.
package main
