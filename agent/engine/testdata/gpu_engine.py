"""An engine that holds memory of GPU 0, with the driver alone.

    gpu_engine.py PORT GIB FILE

It notes the free and the total MiB of the GPU in FILE before it takes its part, and answers every
request with 200 then. PORT 0: it serves nothing, and waits.
"""

import ctypes
import http.server
import sys
import time

port, gib, path = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
cuda = ctypes.CDLL("libcuda.so.1")


def call(name, *args):
    result = getattr(cuda, name)(*args)
    if result:
        sys.exit(f"{name}: {result}")


device, context = ctypes.c_int(), ctypes.c_void_p()
call("cuInit", 0)
call("cuDeviceGet", ctypes.byref(device), 0)
call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
call("cuCtxSetCurrent", context)
free, total, at = ctypes.c_size_t(), ctypes.c_size_t(), ctypes.c_uint64()
call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
with open(path, "a") as file:
    file.write(f"{port} {free.value >> 20} {total.value >> 20}\n")
call("cuMemAlloc_v2", ctypes.byref(at), ctypes.c_size_t(gib << 30))
with open(path + ".held", "a") as file:
    file.write(f"{port}\n")


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"{}")

    do_POST = do_GET

    def log_message(self, *_):
        pass


while port == 0:
    time.sleep(60)
http.server.HTTPServer(("127.0.0.1", port), Handler).serve_forever()
