/* The functions of libcuda.so.1 that serving.backends.tensorrt.cuda_runtime calls, with memory of
   the host in place of a GPU's. For machines without a GPU; tests/gpu runs on a real one. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { INVALID_VALUE = 1, OUT_OF_MEMORY = 2, INVALID_CONTEXT = 201 };
typedef void (*Work)(void);
typedef struct { Work work; } Graph;

static int devices = 1, memories, pinned, streams, events, graphs, copies, priority;
static size_t limit = 1u << 30;
static Graph *recording;
static _Thread_local void *current;

int fake_memories(void) { return memories; }
int fake_pinned(void) { return pinned; }
int fake_handles(void) { return streams + events + graphs; }
int fake_copies(void) { int n = copies; copies = 0; return n; }
int fake_priority(void) { return priority; }
int fake_is_recording(void) { return recording != 0; }
void fake_record(Work work) { recording->work = work; }
void fake_limit(size_t size) { limit = size; }
void fake_devices(int count) { devices = count; }

int cuInit(unsigned flags) { return flags ? INVALID_VALUE : 0; }
int cuDriverGetVersion(int *version) { *version = 13000; return 0; }
int cuDeviceGetCount(int *count) { *count = devices; return 0; }
int cuDeviceGet(int *device, int ordinal) { *device = ordinal; return 0; }
int cuDeviceGetName(char *name, int size, int device) { strncpy(name, "Fake GPU", size); return 0; }
int cuDeviceGetAttribute(int *value, int attribute, int device) {
  *value = attribute == 75 ? 8 : attribute == 76 ? 6 : -1;
  return *value < 0 ? INVALID_VALUE : 0;
}
int cuGetErrorString(int code, const char **text) {
  *text = code == OUT_OF_MEMORY ? "out of memory" : code == INVALID_CONTEXT ? "invalid device context"
        : "invalid argument";
  return 0;
}
int cuDevicePrimaryCtxRetain(void **context, int device) {
  *context = (void *)(intptr_t)(100 + device);
  return 0;
}
int cuCtxSetCurrent(void *context) { current = context; return 0; }
int cuCtxGetStreamPriorityRange(int *least, int *greatest) { *least = 0; *greatest = -5; return 0; }
int cuMemGetInfo_v2(size_t *free, size_t *total) { *free = limit; *total = limit; return 0; }

static int take(void **address, size_t size, int *counter) {
  if (!current) return INVALID_CONTEXT;
  if (!size) return INVALID_VALUE;
  if (size > limit) return OUT_OF_MEMORY;
  *address = malloc(size);
  memset(*address, 0xEE, size);
  (*counter)++;
  return 0;
}
int cuMemAlloc_v2(void **address, size_t size) { return take(address, size, &memories); }
int cuMemFree_v2(uint64_t address) { memories--; free((void *)address); return 0; }
int cuMemHostAlloc(void **address, size_t size, unsigned flags) {
  return flags ? INVALID_VALUE : take(address, size, &pinned);
}
int cuMemFreeHost(void *address) { pinned--; free(address); return 0; }
static int copy(void *to, const void *from, size_t size, void *stream) {
  if (!current) return INVALID_CONTEXT;
  if (!stream || !size) return INVALID_VALUE;
  memcpy(to, from, size);
  copies++;
  return 0;
}
int cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t size, void *stream) {
  return copy((void *)to, from, size, stream);
}
int cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t size, void *stream) {
  return copy(to, (void *)from, size, stream);
}

int cuStreamCreateWithPriority(void **stream, unsigned flags, int wanted) {
  if (!current) return INVALID_CONTEXT;
  if (flags != 1) return INVALID_VALUE;
  priority = wanted;
  *stream = (void *)(intptr_t)(1000 + ++streams);
  return 0;
}
int cuStreamDestroy_v2(void *stream) { streams--; return 0; }
int cuStreamSynchronize(void *stream) { return stream ? 0 : INVALID_VALUE; }
int cuStreamWaitEvent(void *stream, void *event, unsigned flags) {
  return stream && event && !flags ? 0 : INVALID_VALUE;
}
int cuEventCreate(void **event, unsigned flags) {
  *event = (void *)(intptr_t)(2000 + ++events);
  return flags == 2 || flags == 3 ? 0 : INVALID_VALUE;
}
int cuEventRecord(void *event, void *stream) { return event && stream ? 0 : INVALID_VALUE; }
int cuEventSynchronize(void *event) { return event ? 0 : INVALID_VALUE; }
int cuEventDestroy_v2(void *event) { events--; return 0; }

int cuStreamBeginCapture_v2(void *stream, int mode) {
  if (mode != 1 || recording) return INVALID_VALUE;
  recording = calloc(1, sizeof(Graph));
  return 0;
}
int cuStreamEndCapture(void *stream, void **graph) {
  *graph = recording;
  recording = 0;
  return 0;
}
int cuGraphInstantiateWithFlags(void **executable, void *graph, uint64_t flags) {
  if (flags) return INVALID_VALUE;
  *executable = malloc(sizeof(Graph));
  memcpy(*executable, graph, sizeof(Graph));
  graphs++;
  return 0;
}
int cuGraphLaunch(void *executable, void *stream) { ((Graph *)executable)->work(); return 0; }
int cuGraphExecDestroy(void *executable) { graphs--; free(executable); return 0; }
int cuGraphDestroy(void *graph) { free(graph); return 0; }
