// A stand-in for libcuda.so: "GPUs" that are memory of the process. It refuses what the
// driver would refuse: calls before cuInit or without the context of a retained device,
// addresses that were not allocated, copies beyond their end, memory that is registered
// twice. As with the driver, a copy from memory that is not registered is on its way when the
// call returns. simulated_cuda_fail makes a function fail. Tests build it.
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int CUresult;
enum {
  OK = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NOT_INITIALIZED = 3,
  INVALID_DEVICE = 101, INVALID_CONTEXT = 201, ALREADY_REGISTERED = 712, NOT_REGISTERED = 713,
};

#define DEVICES 2
#define TOTAL (64ull << 20)
#define BASE 0x700000000000ull // no address of the host: who reads it as one crashes
#define PARTS 256

static struct part { uint64_t address, bytes; char *mem; } parts[PARTS];
static struct pin { char *at; uint64_t bytes; } pins[PARTS];
static uint64_t next = BASE, used;
static int initialized, retained[DEVICES];
static int unfinished; // copies that nothing has waited for
static __thread void *current;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static char failing[64];
static CUresult failure;

// simulated_cuda_fail makes a function return a result, until it is told another name.
void simulated_cuda_fail(const char *name, CUresult r) {
  snprintf(failing, sizeof failing, "%s", name);
  failure = r;
}

static CUresult told(const char *name) { return strcmp(failing, name) ? OK : failure; }

static CUresult begin(const char *name) {
  CUresult r = told(name);
  if (r) return r;
  if (!initialized) return NOT_INITIALIZED;
  for (int i = 0; i < DEVICES; i++)
    if (current == &retained[i] && retained[i]) return OK;
  return INVALID_CONTEXT;
}

static struct part *find(uint64_t address, uint64_t bytes) {
  for (int i = 0; i < PARTS; i++)
    if (parts[i].mem && address >= parts[i].address && bytes <= parts[i].bytes &&
        address - parts[i].address <= parts[i].bytes - bytes)
      return &parts[i];
  return NULL;
}

CUresult cuInit(unsigned flags) {
  if (told("cuInit")) return told("cuInit");
  if (flags) return INVALID_VALUE;
  initialized = 1;
  return OK;
}

CUresult cuGetErrorName(CUresult r, const char **name) {
  switch (r) {
  case INVALID_VALUE: *name = "SIMULATED_INVALID_VALUE"; return OK;
  case OUT_OF_MEMORY: *name = "SIMULATED_OUT_OF_MEMORY"; return OK;
  case INVALID_CONTEXT: *name = "SIMULATED_INVALID_CONTEXT"; return OK;
  }
  return INVALID_VALUE;
}

CUresult cuDeviceGetCount(int *count) { return initialized ? (*count = DEVICES, told("cuDeviceGetCount")) : NOT_INITIALIZED; }

CUresult cuDeviceGet(int *device, int ordinal) {
  if (!initialized) return NOT_INITIALIZED;
  if (ordinal < 0 || ordinal >= DEVICES) return INVALID_DEVICE;
  *device = 100 + ordinal; // a device is no ordinal
  return told("cuDeviceGet");
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, int device) {
  if (device < 100 || device >= 100 + DEVICES) return INVALID_DEVICE;
  *bytes = TOTAL;
  return told("cuDeviceTotalMem_v2");
}

CUresult cuDeviceGetUuid_v2(unsigned char uuid[16], int device) {
  if (device < 100 || device >= 100 + DEVICES) return INVALID_DEVICE;
  for (int i = 0; i < 16; i++) uuid[i] = i;
  uuid[15] = device - 100;
  return told("cuDeviceGetUuid_v2");
}

CUresult cuDevicePrimaryCtxRetain(void **context, int device) {
  if (device < 100 || device >= 100 + DEVICES) return INVALID_DEVICE;
  if (told("cuDevicePrimaryCtxRetain")) return told("cuDevicePrimaryCtxRetain");
  retained[device - 100]++;
  *context = &retained[device - 100];
  return OK;
}

CUresult cuDevicePrimaryCtxRelease_v2(int device) {
  if (device < 100 || device >= 100 + DEVICES) return INVALID_DEVICE;
  if (!retained[device - 100]) return INVALID_CONTEXT;
  retained[device - 100]--;
  return OK;
}

CUresult cuCtxSetCurrent(void *context) {
  current = context;
  return told("cuCtxSetCurrent");
}

CUresult cuCtxSynchronize(void) {
  CUresult r = begin("cuCtxSynchronize");
  if (r) return r;
  pthread_mutex_lock(&lock);
  unfinished = 0;
  pthread_mutex_unlock(&lock);
  return OK;
}

static __thread void *below[8];
static __thread int depth;

CUresult cuCtxPushCurrent_v2(void *context) {
  if (depth == 8) return INVALID_VALUE;
  below[depth++] = current;
  current = context;
  return OK;
}

CUresult cuCtxPopCurrent_v2(void **context) {
  if (!depth) return INVALID_CONTEXT;
  *context = current;
  current = below[--depth];
  return OK;
}

CUresult cuMemAlloc_v2(uint64_t *address, size_t bytes) {
  CUresult r = begin("cuMemAlloc_v2");
  if (r) return r;
  if (!bytes || !address) return INVALID_VALUE;
  pthread_mutex_lock(&lock);
  r = OUT_OF_MEMORY;
  for (int i = 0; i < PARTS && used + bytes <= TOTAL; i++)
    if (!parts[i].mem) {
      parts[i] = (struct part){next, bytes, malloc(bytes)};
      memset(parts[i].mem, 0xa5, bytes); // nothing is known of new memory
      *address = next;
      next += bytes + 4096; // a hole, so that copies beyond the end are seen
      used += bytes;
      r = OK;
      break;
    }
  pthread_mutex_unlock(&lock);
  return r;
}

CUresult cuMemFree_v2(uint64_t address) {
  CUresult r = begin("cuMemFree_v2");
  if (r) return r;
  pthread_mutex_lock(&lock);
  struct part *p = find(address, 1);
  if (p && p->address == address) {
    used -= p->bytes;
    free(p->mem);
    p->mem = NULL;
  } else
    r = INVALID_VALUE;
  pthread_mutex_unlock(&lock);
  return r;
}

static CUresult copy(const char *name, uint64_t address, char *host, size_t bytes, int in) {
  CUresult r = begin(name);
  if (r) return r;
  pthread_mutex_lock(&lock);
  struct part *p = find(address, bytes);
  char *mem = p ? p->mem + (address - p->address) : NULL;
  unfinished += in;
  for (int i = 0; i < PARTS; i++)
    if (pins[i].at && host >= pins[i].at && host < pins[i].at + pins[i].bytes) unfinished -= in;
  pthread_mutex_unlock(&lock);
  if (!mem || !host) return INVALID_VALUE;
  memcpy(in ? mem : host, in ? host : mem, bytes);
  return OK;
}

CUresult cuMemcpyHtoD_v2(uint64_t to, const void *from, size_t bytes) {
  return copy("cuMemcpyHtoD_v2", to, (char *)from, bytes, 1);
}

CUresult cuMemcpyDtoH_v2(void *to, uint64_t from, size_t bytes) {
  return copy("cuMemcpyDtoH_v2", from, to, bytes, 0);
}

// Writable memory is registered with flags 0, other memory with 8. Which it is the kernel
// would know; the driver finds it out by pinning the pages.
static int writable(const char *at) {
  FILE *f = fopen("/proc/self/maps", "r");
  unsigned long from, to;
  char mode[8], line[512];
  int w = 0;
  while (f && fgets(line, sizeof line, f))
    if (sscanf(line, "%lx-%lx %7s", &from, &to, mode) == 3 && (unsigned long)at >= from && (unsigned long)at < to)
      w = mode[1] == 'w';
  if (f) fclose(f);
  return w;
}

CUresult cuMemHostRegister_v2(void *at, size_t bytes, unsigned flags) {
  CUresult r = begin("cuMemHostRegister_v2");
  if (r) return r;
  if (!at || !bytes || (flags != 0 && flags != 8) || (flags == 0 && !writable(at))) return INVALID_VALUE;
  pthread_mutex_lock(&lock);
  r = OUT_OF_MEMORY;
  for (int i = 0; i < PARTS; i++)
    if (pins[i].at && (char *)at < pins[i].at + pins[i].bytes && pins[i].at < (char *)at + bytes) r = ALREADY_REGISTERED;
  for (int i = 0; i < PARTS && r == OUT_OF_MEMORY; i++)
    if (!pins[i].at) {
      pins[i] = (struct pin){at, bytes};
      r = OK;
    }
  pthread_mutex_unlock(&lock);
  return r;
}

CUresult cuMemHostUnregister(void *at) {
  CUresult r = begin("cuMemHostUnregister");
  if (r) return r;
  r = NOT_REGISTERED;
  pthread_mutex_lock(&lock);
  for (int i = 0; i < PARTS; i++)
    if (pins[i].at == at) {
      pins[i].at = NULL;
      r = OK;
    }
  pthread_mutex_unlock(&lock);
  return r;
}

CUresult cuIpcGetMemHandle(char handle[64], uint64_t address) {
  CUresult r = begin("cuIpcGetMemHandle");
  if (r) return r;
  pthread_mutex_lock(&lock);
  struct part *p = find(address, 1);
  pthread_mutex_unlock(&lock);
  if (!p || p->address != address) return INVALID_VALUE;
  memset(handle, 0, 64);
  snprintf(handle, 64, "simulated %llx", (unsigned long long)address);
  return OK;
}

// Handles are opened in the process that made them, as the memory is in no other.
static int opened;
struct handle { char text[64]; };

CUresult cuIpcOpenMemHandle_v2(uint64_t *address, struct handle handle, unsigned flags) {
  CUresult r = begin("cuIpcOpenMemHandle_v2");
  if (r) return r;
  unsigned long long at;
  if (flags != 1 || sscanf(handle.text, "simulated %llx", &at) != 1 || !find(at, 1)) return INVALID_VALUE;
  *address = at;
  opened++;
  return OK;
}

CUresult cuIpcCloseMemHandle(uint64_t address) {
  CUresult r = begin("cuIpcCloseMemHandle");
  if (r) return r;
  if (!opened || !find(address, 1)) return INVALID_VALUE;
  opened--;
  return OK;
}

// What tests ask.
int simulated_cuda_opened(void) { return opened; }
int simulated_cuda_pins(void) {
  int n = 0;
  for (int i = 0; i < PARTS; i++) n += pins[i].at != NULL;
  return n;
}

unsigned long long simulated_cuda_used(void) { return used; }
int simulated_cuda_unfinished(void) { return unfinished; }
int simulated_cuda_retained(int i) { return retained[i]; }
