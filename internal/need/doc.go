// Package need lets a test say what it needs of the machine: root, cgroups,
// network namespaces, FUSE, a program, the clients of Redis, Node.js with packages, containerd, a GPU.
//
// On a machine that lacks it the test is skipped with the reason, so that
// `make test` passes on a laptop. A skip that nobody notices is a test that
// does not exist, so ROTA_REQUIRE names the needs that must be met; a test that
// lacks one of them fails:
//
//	ROTA_REQUIRE=root,cgroup,netns,fuse,tool,redis,node,prometheus,containerd go test ./...
//	ROTA_REQUIRE=all go test ./...
//
// "all" is everything but a GPU: ROTA_REQUIRE=all,gpu names that, too.
package need
