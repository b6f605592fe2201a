/* The functions of libcuda.so.1 that serving.cuda_driver calls, over files in place of a GPU: a
   handle holds the path of one. For machines without a GPU; tests/gpu has the same on a real one. */
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct { char path[64]; } Handle;
enum { INVALID_VALUE = 1, OUT_OF_MEMORY = 2, INVALID_CONTEXT = 201, INVALID_HANDLE = 400 };

#define MOST 64
static struct { char *base; size_t size; } mapped[MOST];
static int devices = 1;
static int retained;
static _Thread_local intptr_t stack[8];
static _Thread_local int depth;

int fake_open(void) { int n = 0; for (int i = 0; i < MOST; i++) n += mapped[i].base != 0; return n; }
int fake_retained(void) { return retained; }
int fake_depth(void) { return depth; }
void fake_devices(int count) { devices = count; }

int cuInit(unsigned flags) { return flags ? INVALID_VALUE : 0; }
int cuDeviceGetCount(int *count) { *count = devices; return 0; }
int cuDeviceGet(int *device, int ordinal) { *device = ordinal; return 0; }
int cuGetErrorString(int code, const char **text) {
  *text = code == OUT_OF_MEMORY ? "out of memory" : code == INVALID_HANDLE ? "invalid resource handle" : 0;
  return *text ? 0 : INVALID_VALUE;
}
int cuDevicePrimaryCtxRetain(void **context, int device) {
  retained++;
  *context = (void *)(intptr_t)(100 + device);
  return 0;
}
int cuCtxPushCurrent_v2(void *context) { stack[depth++] = (intptr_t)context; return 0; }
int cuCtxPopCurrent_v2(void **context) { *context = (void *)stack[--depth]; return 0; }
int cuStreamCreate(void **stream, unsigned flags) {
  if (!depth) return INVALID_CONTEXT;
  if (flags != 1) return INVALID_VALUE;
  *stream = (void *)(stack[depth - 1] + 1000);
  return 0;
}
static int check(void *stream) {
  return !depth ? INVALID_CONTEXT : (intptr_t)stream != stack[depth - 1] + 1000 ? INVALID_HANDLE : 0;
}
int cuStreamSynchronize(void *stream) { return check(stream); }

int cuIpcOpenMemHandle_v2(uint64_t *address, Handle handle, unsigned flags) {
  struct stat there;
  int file, slot = 0;
  if (!depth) return INVALID_CONTEXT;
  if (flags != 1) return INVALID_VALUE;
  if (!strcmp(handle.path, "full")) return OUT_OF_MEMORY;
  if ((file = open(handle.path, O_RDWR)) < 0) return INVALID_HANDLE;
  fstat(file, &there);
  while (mapped[slot].base) slot++;
  mapped[slot].base = mmap(0, there.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  mapped[slot].size = there.st_size;
  close(file);
  *address = (uint64_t)mapped[slot].base;
  return 0;
}
static int slot_of(uint64_t address) {
  for (int i = 0; i < MOST; i++) {
    uint64_t base = (uint64_t)mapped[i].base;
    if (base && base <= address && address < base + mapped[i].size) return i;
  }
  return -1;
}
int cuIpcCloseMemHandle(uint64_t address) {
  int slot = slot_of(address);
  if (!depth || slot < 0) return INVALID_VALUE;
  munmap(mapped[slot].base, mapped[slot].size);
  mapped[slot].base = 0;
  return 0;
}
int cuMemGetAddressRange_v2(uint64_t *base, size_t *size, uint64_t address) {
  int slot = slot_of(address);
  if (!depth || slot < 0) return INVALID_VALUE;
  *base = (uint64_t)mapped[slot].base;
  *size = mapped[slot].size;
  return 0;
}
int cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t size, void *stream) {
  if (check(stream) || slot_of(from) < 0) return INVALID_VALUE;
  memcpy(to, (void *)from, size);
  return 0;
}
int cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t size, void *stream) {
  if (check(stream) || slot_of(to) < 0) return INVALID_VALUE;
  memcpy((void *)to, from, size);
  return 0;
}
