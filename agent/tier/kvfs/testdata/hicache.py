"""Does to a directory what the file back end of SGLang's HiCache does, and what else a process may do.

Usage: hicache.py DIR all | clear | loop | hold NAME BYTES | bench BYTES | fill N BYTES | check N BYTES
"""

import ctypes
import errno
import mmap
import os
import subprocess
import sys
import threading
import time
import uuid

LIBC = ctypes.CDLL(None, use_errno=True)
KEEP_SIZE = 1


def tofile(path, data):
    """Writes as numpy.ndarray.tofile does: through a duplicate of the file descriptor, with space
    allocated beforehand for large arrays. The file is closed twice."""
    with open(path, "wb") as f:
        fd = os.dup(f.fileno())
        if len(data) > 16 << 20:
            LIBC.fallocate(fd, KEEP_SIZE, ctypes.c_long(0), ctypes.c_long(len(data)))
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view):]
        os.close(fd)


class Pages:
    def __init__(self, directory, suffix="_model_0_1"):
        self.directory, self.suffix = directory, suffix

    def path(self, key):
        return os.path.join(self.directory, f"{key}{self.suffix}.bin")

    def exists(self, key):
        return os.path.exists(self.path(key))

    def get(self, key, size):
        buffer = bytearray(size)
        try:
            with open(self.path(key), "rb", buffering=0) as f:
                if f.readinto(memoryview(buffer)) != size:
                    raise IOError(f"short read of {key}")
        except FileNotFoundError:
            return None
        return bytes(buffer)

    def set(self, key, data):
        if self.exists(key):
            return True
        path = self.path(key)
        temporary = f"{path}.tmp.{os.getpid()}.{threading.get_ident()}.{uuid.uuid4().hex}"
        try:
            tofile(temporary, data)
            os.replace(temporary, path)
            return True
        except OSError as e:
            print(f"set {key}: {e}", file=sys.stderr)
            try:
                os.remove(temporary)
            except OSError:
                pass
            return False

    def clear(self):
        for name in os.listdir(self.directory):
            path = os.path.join(self.directory, name)
            if os.path.isfile(path):
                os.remove(path)


def expect(got, want, what):
    if got != want:
        raise SystemExit(f"{what}: {got!r}, not {want!r}")


def fails(number, call, *args):
    try:
        call(*args)
    except OSError as e:
        expect(e.errno, number, f"error of {call.__name__}{args}")
        return
    raise SystemExit(f"{call.__name__}{args} works")


def back_end(p):
    """What the back end does."""
    one, large = os.urandom(1 << 20), os.urandom((20 << 20) + 5)
    expect(p.exists("a"), False, "a before it is written")
    expect(p.get("a", 10), None, "a before it is written")
    expect(p.set("a", one), True, "set a")
    expect((p.exists("a"), os.path.getsize(p.path("a"))), (True, len(one)), "a")
    expect(p.get("a", len(one)) == one, True, "the bytes of a")
    expect(p.set("a", b"another"), True, "set a again")
    expect(p.get("a", len(one)) == one, True, "the bytes of a after it was set again")
    expect(p.set("large", large), True, "set large")
    expect(p.get("large", len(large)) == large, True, "the bytes of large")
    expect(p.set("a.mamba", b"state"), True, "set a component")
    with os.scandir(p.directory) as entries:
        names = sorted(e.name for e in entries if e.is_file())
    expect(names, ["a.mamba_model_0_1.bin", "a_model_0_1.bin", "large_model_0_1.bin"], "the files")


def in_place(p):
    """What older versions do: the file gets its name before it is whole."""
    path = p.path("b")
    with open(path, "wb") as f:
        f.write(b"x" * 200000)
        f.flush()
        expect(p.exists("b"), False, "b while it is written")
        os.set_inheritable(f.fileno(), True)
        subprocess.run(["true"], close_fds=False, check=True)
        expect(p.exists("b"), False, "b after another process has closed it")
        os.fsync(f.fileno())
    expect(p.get("b", 200000), b"x" * 200000, "b")
    with open(path, "wb") as f:
        f.write(b"y" * 100)
        f.flush()
        expect(p.get("b", 200000), b"x" * 200000, "b while it is replaced")
    expect(p.get("b", 100), b"y" * 100, "b after it was replaced")


def odd(p):
    """What any other program may do."""
    path = p.path("c")
    with open(path, "wb") as f:
        f.seek(70000)
        f.write(b"end")
    expect(p.get("c", 70003), bytes(70000) + b"end", "a file with a hole")
    with open(path, "r+b") as f:
        f.write(b"begin")
        f.truncate(6)
        f.seek(0)
        expect(f.read(), b"begin\0", "a file that is open for both")
    with open(path, "ab") as f:
        f.write(b"more")
        f.flush()
        f.write(b"andmore")
    expect(p.get("c", 17), b"begin\0moreandmore", "a file that was appended to")
    with open(path, "rb") as f, mmap.mmap(f.fileno(), 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ) as m:
        expect(m[:5], b"begin", "a mapped file")
    with open(path, "rb") as f:
        os.remove(path)
        expect(f.read(5), b"begin", "a file that was removed")
    fails(errno.ENOENT, os.remove, path)
    subprocess.run(f"printf shell > {p.path('f')}; (printf sub; printf shell) > {p.path('g')}", shell=True, check=True)
    expect(p.get("f", 5), b"shell", "what a shell writes")
    expect(p.get("g", 8), b"subshell", "what a subshell writes")
    fails(errno.EINVAL, open, os.path.join(p.directory, "notes.txt"), "wb")
    fails(errno.ENOENT, os.stat, os.path.join(p.directory, "redis"))
    fails(errno.EINVAL, os.rename, p.path("f"), os.path.join(p.directory, "f.txt"))
    fails(errno.ENOENT, os.rename, p.path("none"), p.path("f"))
    fails(errno.EPERM, os.chmod, p.path("f"), 0o777)
    os.utime(p.path("f"))
    space = os.statvfs(p.directory)
    expect(space.f_bavail > 0, True, "free space")


def everything(p):
    back_end(p)
    in_place(p)
    odd(p)
    p.set("kept", b"kept")


def loop(p):
    """Reports whether the cache hits, whenever that changes."""
    last, n, data = None, 0, os.urandom(100000)
    while True:
        n += 1
        begun = time.monotonic()
        key = f"loop{n % 50}"
        if p.exists(key):
            try:
                hit = p.get(key, len(data)) == data
            except OSError:
                hit = False
        else:
            hit = p.set(key, data)
        if time.monotonic() - begun > 30:
            raise SystemExit("the directory hangs")
        if hit != last:
            print("hit" if hit else "miss", flush=True)
            last = hit
        time.sleep(0.002)


def numbered(n, size):
    return [bytes([i % 251, 1]) * (size // 2) for i in range(n)]


def bench(p, size):
    """Writes and reads a page for each line of the input."""
    data, n = os.urandom(size), 0
    print("ready", flush=True)
    for _ in sys.stdin:
        n += 1
        key = f"bench{n % 16}"
        expect(p.set(key, data), True, "set")
        expect(p.get(key, size) == data, True, "the bytes")
        os.remove(p.path(key))
        print("done", flush=True)


def main():
    p, what = Pages(sys.argv[1]), sys.argv[2]
    if what == "hold":
        with open(p.path(sys.argv[3]), "wb") as f:
            f.write(bytes(int(sys.argv[4])))
            f.flush()
            print("held", flush=True)
            sys.stdin.read()
    elif what == "loop":
        loop(p)
    elif what == "fill":
        for i, data in enumerate(numbered(int(sys.argv[3]), int(sys.argv[4]))):
            expect(p.set(f"page{i}", data), True, f"set page{i}")
    elif what == "check":
        for i, data in enumerate(numbered(int(sys.argv[3]), int(sys.argv[4]))):
            expect(p.get(f"page{i}", len(data)) == data, True, f"the bytes of page{i}")
    elif what == "bench":
        bench(p, int(sys.argv[3]))
    elif what == "clear":
        p.clear()
    else:
        everything(p)


main()
