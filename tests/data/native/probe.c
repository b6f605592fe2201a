/* A backend for tests: does what the text in WHAT says, and writes a journal of its calls. */
#include "conch_backend.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#ifndef ABI_VERSION
#define ABI_VERSION CONCH_BACKEND_ABI_VERSION
#endif

static void note(const char *what, const char *name)
{
  const char *path = getenv("PROBE_JOURNAL");
  FILE *file = path != NULL ? fopen(path, "a") : NULL;
  if (file != NULL) {
    fprintf(file, "%s %s\n", what, name);
    fclose(file);
  }
}

static const char *setting(const conch_backend *backend, const char *key)
{
  for (uint32_t index = 0; index < backend->setting_count; index++) {
    if (strcmp(backend->settings[index].key, key) == 0) {
      return backend->settings[index].value;
    }
  }
  return "";
}

uint32_t conch_backend_abi_version(void)
{
  return ABI_VERSION;
}

void conch_backend_attributes(conch_attributes *attributes)
{
  attributes->execution_policy = CONCH_EXECUTION_DEVICE_BLOCKING;
}

int32_t conch_backend_initialize(conch_backend *backend, conch_error *error)
{
  note("backend_initialize", backend->name);
  if (strcmp(setting(backend, "licence"), "none") == 0) {
    return conch_fail(error, CONCH_UNAVAILABLE, "there is no licence for %s", backend->name);
  }
  backend->state = strdup(backend->name);
  return CONCH_OK;
}

void conch_backend_finalize(conch_backend *backend)
{
  note("backend_finalize", backend->state);
  free(backend->state);
}

int32_t conch_model_initialize(conch_model *model, conch_error *error)
{
  note("model_initialize", model->name);
  model->backend->host->log(CONCH_LOG_WARNING, model->config);
  if (strstr(model->config, "refuse this model") != NULL) {
    return conch_fail(error, CONCH_UNSUPPORTED, "version %lld is not liked",
                      (long long)model->version);
  }
  model->state = strdup(model->name);
  return CONCH_OK;
}

void conch_model_finalize(conch_model *model)
{
  note("model_finalize", model->state);
  free(model->state);
}

int32_t conch_instance_initialize(conch_instance *instance, conch_error *error)
{
  (void)error;
  note("instance_initialize", instance->name);
  return CONCH_OK;
}

void conch_instance_finalize(conch_instance *instance)
{
  note("instance_finalize", instance->name);
}

int32_t conch_instance_ready(conch_instance *instance, conch_error *error)
{
  const char *path = getenv("PROBE_NOT_READY");
  FILE *file = path != NULL ? fopen(path, "r") : NULL;
  if (file != NULL) {
    fclose(file);
    return conch_fail(error, CONCH_UNAVAILABLE, "%s is tired", instance->name);
  }
  return CONCH_OK;
}

static void echo(const conch_host *host, const conch_request *request, conch_error *error)
{
  conch_tensor outputs[2];
  conch_parameter parameters[32] = {
      {.name = "the id", .type = CONCH_PARAMETER_STRING, .string_value = request->id},
      {.name = "correlation",
       .type = CONCH_PARAMETER_INT,
       .int_value = (int64_t)request->correlation_id},
      {.name = "correlation text",
       .type = CONCH_PARAMETER_STRING,
       .string_value = request->correlation_id_text},
      {.name = "starts",
       .type = CONCH_PARAMETER_BOOL,
       .bool_value = (request->flags & CONCH_SEQUENCE_START) != 0},
      {.name = "batch", .type = CONCH_PARAMETER_INT, .int_value = request->batch_size},
      {.name = "priority", .type = CONCH_PARAMETER_INT, .int_value = request->priority},
      {.name = "timeout",
       .type = CONCH_PARAMETER_DOUBLE,
       .double_value = (double)request->timeout_us / 4},
      {.name = "wanted",
       .type = CONCH_PARAMETER_STRING,
       .string_value = request->output_count > 0 ? request->outputs[0] : "all"}};
  uint32_t count = 8;
  for (uint32_t index = 0; index < request->parameter_count && count < 32; index++) {
    parameters[count++] = request->parameters[index];
  }
  outputs[0] = *conch_input(request, "X");
  outputs[0].name = "OUT";
  outputs[1] = *conch_input(request, "WHAT");
  outputs[1].name = "TEXT";
  const conch_response response = {
      .outputs = outputs,
      .output_count = 2,
      .parameters = parameters,
      .parameter_count = count};
  host->respond(request, &response, CONCH_RESPONSE_FINAL, error);
}

struct call {
  const conch_host *host;
  const conch_request *request;
};

static void *echo_in_thread(void *argument)
{
  const struct call *call = argument;
  conch_error error;
  echo(call->host, call->request, &error);
  return NULL;
}

/* A wrong response of each kind. */
static void misbehave(
    const conch_host *host, const conch_request *request, const char *what, conch_error *error)
{
  const float values[] = {1, 2};
  const int64_t shape[] = {1, 2}, negative[] = {1, -2}, huge[] = {1, (int64_t)1 << 58};
  conch_tensor out = {"OUT", CONCH_FP32, 2, shape, values, sizeof(values)};
  conch_response response = {.outputs = &out, .output_count = 1};
  uint32_t flags = CONCH_RESPONSE_FINAL;
  if (strcmp(what, "unknown output") == 0) {
    out.name = "NEVER";
  } else if (strcmp(what, "wrong type") == 0) {
    out.datatype = CONCH_INT32;
  } else if (strcmp(what, "wrong size") == 0) {
    out.byte_size = 4;
  } else if (strcmp(what, "negative size") == 0) {
    out.shape = negative;
  } else if (strcmp(what, "huge") == 0) {
    out.shape = huge;
    out.byte_size = (uint64_t)1 << 60;
  } else if (strcmp(what, "no data") == 0) {
    out.data = NULL;
  } else if (strcmp(what, "no tensors") == 0) {
    response.outputs = NULL;
  } else if (strcmp(what, "not final") == 0) {
    flags = 0;
  }
  const int32_t code = host->respond(request, &response, flags, error);
  if (strcmp(what, "twice") == 0) {
    note("second", host->respond(request, &response, flags, error) == CONCH_NOT_FOUND
                       ? error->message
                       : "taken");
  } else if (code == CONCH_INVALID_ARG) {
    note("refused", error->message);
  }
}

/* Returns 1 where execute is to fail. */
static int serve(
    const conch_host *host, const conch_request *request, const char *what, conch_error *error)
{
  if (strcmp(what, "crash") == 0) {
    abort();
  } else if (strcmp(what, "silent") == 0) {
    return 0;
  } else if (strcmp(what, "failure") == 0) {
    return 1;
  } else if (strncmp(what, "error ", 6) == 0) {
    const conch_response response = {.code = atoi(what + 6), .message = "as was asked"};
    host->respond(request, &response, CONCH_RESPONSE_FINAL, error);
  } else if (strcmp(what, "thread") == 0) {
    struct call call = {host, request};
    pthread_t thread;
    pthread_create(&thread, NULL, echo_in_thread, &call);
    pthread_join(thread, NULL);
  } else if (strcmp(what, "echo") == 0) {
    echo(host, request, error);
  } else {
    misbehave(host, request, what, error);
  }
  return 0;
}

int32_t conch_instance_execute(
    conch_instance *instance, const conch_request *const *requests, uint32_t count,
    conch_error *error)
{
  int has_failed = 0;
  for (uint32_t index = 0; index < count; index++) {
    char what[64] = "";
    const conch_tensor *text = conch_input(requests[index], "WHAT");
    if (text != NULL && text->byte_size > 4) {
      const uint8_t *bytes = text->data; /* shorter than 64, as all texts of the tests */
      memcpy(what, bytes + 4, bytes[0]);
    }
    has_failed |= serve(instance->model->backend->host, requests[index], what, error);
  }
  if (has_failed) {
    return conch_fail(error, CONCH_UNAVAILABLE, "the machine is out of order");
  }
  return CONCH_OK;
}
