/* Backends for Conch in C or C++. One file, no library to link: include it, export the functions
 * below, build a shared library `libconch_<name>.so` (`libtriton_<name>.so` is found, too):
 *
 *     gcc -shared -fPIC -O2 -I <folder of this file> -o libconch_square.so square.c
 *
 * and put it into the model's version folder, the model's folder, or <backend-directory>/<name>/.
 * The names are those of Triton's backend API, the calls are not: a library for Triton has to be
 * built anew against this file.
 *
 * Objects. A backend serves all models that name it; it is initialised before the first of them
 * is loaded and finalised when its process ends, not when its last model goes. A model is one
 * version of a model. An instance is one running copy of it; it gets requests in batches. Each has
 * a member `state` that is the library's own: set it when the object is initialised, free what it
 * points to when it is finalised. Everything else belongs to the server, and is only to be read.
 *
 * Processes. With the model's parameter `instance_isolation` set to `process` each instance has a
 * process, and with it backend and model objects, of its own: a crash ends that process only, which
 * is started again. Otherwise everything lives in the server's process, and a crash ends that.
 *
 * Threads. conch_model_initialize is never called twice at once for one model, but maybe for two
 * models at once. What concerns one instance is called in one thread, one call at a time; two
 * instances of a model execute at the same time, unless the execution policy says otherwise. The
 * functions of `conch_host` may be called in any thread of the library's.
 *
 * Files. The folders of a model belong to the repository: a library may read them, also while the
 * model runs, and must not write to them. They may be gone once the model has been finalised.
 *
 * Memory. Strings are UTF-8, end with a zero byte and are never NULL. What is reached through an
 * argument is valid until the call returns, with two exceptions: what is reached through a
 * conch_backend, conch_model or conch_instance is valid until that object has been finalised, and
 * a request, with its tensors, until its final response has been given. Tensors of a request are
 * aligned to their elements. `respond` copies what it is given: all buffers are the caller's before
 * and after.
 *
 * Errors. Functions return CONCH_OK, or another code with a message in `error`: conch_fail does
 * both. C++ exceptions must not leave the library.
 */
#ifndef CONCH_BACKEND_H
#define CONCH_BACKEND_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A library is loaded where this number is the server's. */
#define CONCH_BACKEND_ABI_VERSION 1u
#define CONCH_MESSAGE_SIZE 1024

#if defined(__GNUC__)
#define CONCH_EXPORT __attribute__((visibility("default")))
#define CONCH_PRINTF(text, first) __attribute__((format(printf, text, first)))
#else
#define CONCH_EXPORT
#define CONCH_PRINTF(text, first)
#endif

/* Triton's status codes. Clients see INVALID_ARG as HTTP 400, UNAVAILABLE as 503, and so on. */
enum conch_code {
  CONCH_OK = 0,
  CONCH_UNKNOWN = 1,
  CONCH_INTERNAL = 2,
  CONCH_NOT_FOUND = 3,
  CONCH_INVALID_ARG = 4,
  CONCH_UNAVAILABLE = 5,
  CONCH_UNSUPPORTED = 6,
  CONCH_ALREADY_EXISTS = 7,
  CONCH_CANCELLED = 8
};

typedef struct conch_error {
  char message[CONCH_MESSAGE_SIZE];
} conch_error;

/* Numbers as in ModelConfig.DataType. */
enum conch_datatype {
  CONCH_BOOL = 1, /* one byte, 0 or 1 */
  CONCH_UINT8 = 2,
  CONCH_UINT16 = 3,
  CONCH_UINT32 = 4,
  CONCH_UINT64 = 5,
  CONCH_INT8 = 6,
  CONCH_INT16 = 7,
  CONCH_INT32 = 8,
  CONCH_INT64 = 9,
  CONCH_FP16 = 10,
  CONCH_FP32 = 11,
  CONCH_FP64 = 12,
  CONCH_BYTES = 13, /* each element: its length as 4 bytes, little-endian, then its bytes */
  CONCH_BF16 = 14
};

/* In CPU memory, row by row. */
typedef struct conch_tensor {
  const char *name;
  int32_t datatype; /* enum conch_datatype */
  uint32_t rank;
  const int64_t *shape; /* `rank` sizes; the first is the batch where the model batches */
  const void *data;
  uint64_t byte_size;
} conch_tensor;

enum conch_parameter_type {
  CONCH_PARAMETER_STRING = 0,
  CONCH_PARAMETER_INT = 1,
  CONCH_PARAMETER_BOOL = 2,
  CONCH_PARAMETER_DOUBLE = 3
};

typedef struct conch_parameter {
  const char *name;
  int32_t type; /* enum conch_parameter_type: which of the members below counts */
  int32_t bool_value;
  int64_t int_value;
  double double_value;
  const char *string_value; /* not read, and may be NULL, for other types */
} conch_parameter;

enum conch_request_flags { CONCH_SEQUENCE_START = 1, CONCH_SEQUENCE_END = 2 };

typedef struct conch_request {
  const char *id;
  uint64_t correlation_id;          /* 0: none, or a text */
  const char *correlation_id_text;  /* "": none, or a number */
  uint32_t flags;                   /* enum conch_request_flags */
  uint32_t priority;
  uint64_t timeout_us;
  uint32_t batch_size;              /* rows; 1 where the model does not batch */
  uint32_t input_count;
  const conch_tensor *inputs;       /* controls and states of sequences are among them */
  uint32_t output_count;            /* 0: every output is wanted */
  uint32_t parameter_count;
  const char *const *outputs;       /* names of those that are wanted, states among them */
  const conch_parameter *parameters;
} conch_request;

typedef struct conch_response {
  int32_t code;                     /* CONCH_OK, or the request fails with `message` */
  uint32_t output_count;
  const conch_tensor *outputs;      /* those that nobody wants are left out by the server */
  uint32_t parameter_count;
  uint32_t reserved;                /* 0 */
  const conch_parameter *parameters;
  const char *message;              /* not read, and may be NULL, where `code` is CONCH_OK */
} conch_response;

/* Of a response: the last one for its request. */
#define CONCH_RESPONSE_FINAL 1u

enum conch_log_level {
  CONCH_LOG_ERROR = 0,
  CONCH_LOG_WARNING = 1,
  CONCH_LOG_INFO = 2,
  CONCH_LOG_VERBOSE = 3
};

/* What the server does for a library. Any thread may call. */
typedef struct conch_host {
  uint32_t abi_version;
  uint32_t reserved;

  /* Into the server's log, under the backend's name. */
  void (*log)(int32_t level, const char *message);

  /* One response to a request. A model that is not decoupled gives exactly one, with
   * CONCH_RESPONSE_FINAL, before execute returns. A decoupled one (model_transaction_policy
   * { decoupled: true }) gives any number, in any thread, also after execute has returned; the last
   * with CONCH_RESPONSE_FINAL, or after the last CONCH_RESPONSE_FINAL alone, with `response` NULL.
   * Responses to different requests may come in any order. After the final one the request is gone:
   * its pointer must not be used again.
   *
   * Fails with CONCH_INVALID_ARG where the response is not possible (a tensor that the config does
   * not declare, of another type, or of a size that is not that of its shape); the request then
   * fails with that message, and is gone. With CONCH_NOT_FOUND the request is over already. */
  int32_t (*respond)(
      const conch_request *request, const conch_response *response, uint32_t flags,
      conch_error *error);

  /* 1 where whoever sent the request does not wait any more; it still needs a final response. */
  int32_t (*is_cancelled)(const conch_request *request);
} conch_host;

typedef struct conch_setting {
  const char *key;
  const char *value;
} conch_setting;

typedef struct conch_backend {
  const conch_host *host;
  const char *name;
  const char *library;            /* path of the library */
  uint32_t setting_count;
  uint32_t reserved;
  const conch_setting *settings;  /* --backend-config */
  void *state;                    /* the library's own */
} conch_backend;

typedef struct conch_model {
  conch_backend *backend;
  const char *name;
  int64_t version;
  const char *model_directory;
  const char *version_directory;
  const char *config;             /* the completed ModelConfig as JSON, as GET /config shows it */
  uint32_t is_decoupled;
  uint32_t max_batch_size;
  void *state;                    /* the library's own */
} conch_model;

enum conch_instance_kind { CONCH_KIND_CPU = 0, CONCH_KIND_GPU = 1, CONCH_KIND_MODEL = 2 };

typedef struct conch_instance {
  conch_model *model;
  const char *name;
  int32_t kind;                   /* enum conch_instance_kind */
  int32_t device;                 /* number of the GPU, as the process sees it */
  void *state;                    /* the library's own */
} conch_instance;

enum conch_execution_policy {
  CONCH_EXECUTION_BLOCKING = 0,        /* instances execute side by side */
  CONCH_EXECUTION_DEVICE_BLOCKING = 1  /* of a model's instances on a device, one at a time */
};

/* Filled with zeros when it comes. */
typedef struct conch_attributes {
  int32_t execution_policy;       /* enum conch_execution_policy */
  int32_t parallel_loading;       /* 1: instances of a model may be initialised at once */
} conch_attributes;

/* ---- What a library exports. The first and the last must be there, all others may. ---- */

/* return CONCH_BACKEND_ABI_VERSION; */
CONCH_EXPORT uint32_t conch_backend_abi_version(void);

/* Called before anything else but the version. */
CONCH_EXPORT void conch_backend_attributes(conch_attributes *attributes);

/* An error fails the load of the model; the next load tries again. */
CONCH_EXPORT int32_t conch_backend_initialize(conch_backend *backend, conch_error *error);
CONCH_EXPORT void conch_backend_finalize(conch_backend *backend);

/* An error fails the load; the finalising function of the same object is then not called. */
CONCH_EXPORT int32_t conch_model_initialize(conch_model *model, conch_error *error);
CONCH_EXPORT void conch_model_finalize(conch_model *model);

CONCH_EXPORT int32_t conch_instance_initialize(conch_instance *instance, conch_error *error);
CONCH_EXPORT void conch_instance_finalize(conch_instance *instance);

/* Anything but CONCH_OK makes the model not ready. Asked while the instance executes nothing, in
 * its thread, when somebody asks whether the model is ready. */
CONCH_EXPORT int32_t conch_instance_ready(conch_instance *instance, conch_error *error);

/* Answer `count` requests, see `respond`. An error fails those that have had no final response. */
CONCH_EXPORT int32_t conch_instance_execute(
    conch_instance *instance, const conch_request *const *requests, uint32_t count,
    conch_error *error);

/* ---- Helpers ---- */

/* return conch_fail(error, CONCH_INVALID_ARG, "input %s is empty", name); */
CONCH_PRINTF(3, 4)
static inline int32_t conch_fail(conch_error *error, int32_t code, const char *format, ...)
{
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(error->message, sizeof(error->message), format, arguments);
  va_end(arguments);
  return code;
}

/* The input of that name, or NULL. */
static inline const conch_tensor *conch_input(const conch_request *request, const char *name)
{
  for (uint32_t index = 0; index < request->input_count; index++) {
    const char *left = request->inputs[index].name;
    const char *right = name;
    while (*left != '\0' && *left == *right) {
      left++;
      right++;
    }
    if (*left == *right) {
      return &request->inputs[index];
    }
  }
  return NULL;
}

#ifdef __cplusplus
}
#endif

#endif
