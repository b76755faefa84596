//go:build !nvml

package inventory

// nvmlGPUs would need a C compiler, and the binary is static.
func nvmlGPUs() (*GPUs, error) { return nil, ErrNoNVML }
