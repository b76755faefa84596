//go:build !cuda

package device

import "fmt"

// cudaLibrary is not loaded: loading libraries would make the binary dynamic.
const cudaLibrary = ""

func openCUDA(string, Spec) (Device, error) {
	return nil, fmt.Errorf("%w: this binary was built without CUDA; build it with go build -tags cuda ./cmd/rota", ErrOptions)
}
