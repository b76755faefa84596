//go:build !nvml

package inventory

// nvmlGPUs would need a C compiler, and the binary is static.
func nvmlGPUs() (*GPUs, error) { return nil, ErrNoNVML }

func nvmlMemory(string) (used, total uint64, err error) { return 0, 0, ErrNoNVML }

func nvmlUsers(string) ([]GPUUser, error) { return nil, ErrNoNVML }

func nvmlProbe([]string) (Probe, error) { return nil, ErrNoNVML }
