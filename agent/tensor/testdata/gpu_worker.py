"""A worker that opens a state on the GPU and says what it sees, as lines of JSON.

    gpu_worker.py ADDRESS DEPLOYMENT VERSION

It ends when standard input says so, and dies with the state open if that ends first.
"""

import hashlib
import json
import os
import sys

import torch

from rota.state import StateClient, StateError

states = StateClient(sys.argv[1], timeout=60)
on_gpu = states.open_device(sys.argv[2], int(sys.argv[3]))
torch.cuda.init()
torch.cuda.synchronize()
free = torch.cuda.mem_get_info()[0]
seen = {}
for name in on_gpu.places:
    tensor = on_gpu.tensor(name)
    address = on_gpu.view(name).__cuda_array_interface__["data"][0]
    raw = tensor.contiguous().view(torch.uint8).cpu().numpy().tobytes()
    seen[name] = {
        "sha256": hashlib.sha256(raw).hexdigest(),
        "in_place": tensor.data_ptr() == address and tensor.is_cuda,
        "dtype": str(tensor.dtype),
        "shape": list(tensor.shape),
    }
    del tensor
last = on_gpu.tensor(next(iter(on_gpu.places)))
seen["total"] = int(last.view(torch.uint8).sum(dtype=torch.int64))  # a kernel on it
try:
    on_gpu.close()
    seen["closed_in_use"] = True
except StateError as err:
    seen["closed_in_use"] = err.reason != "MAPPED"
seen["allocated"] = torch.cuda.max_memory_allocated()
print(json.dumps(seen), flush=True)
for line in sys.stdin:
    if line == "close\n":
        del last
        on_gpu.close()
        print(json.dumps({"closed": True}), flush=True)
os._exit(1)
