/* A backend in C: OUT is IN times the number in the file factor.txt of the version folder.
 *
 *     gcc -shared -fPIC -O2 -I ../../serving/backends/native -o libconch_scale.so scale.c
 */
#include "conch_backend.h"

#include <stdlib.h>
#include <string.h>

struct model {
  float factor;
};

struct instance {
  int64_t executions;
};

uint32_t conch_backend_abi_version(void)
{
  return CONCH_BACKEND_ABI_VERSION;
}

void conch_backend_attributes(conch_attributes *attributes)
{
  attributes->execution_policy = CONCH_EXECUTION_BLOCKING;
  attributes->parallel_loading = 1;
}

int32_t conch_model_initialize(conch_model *model, conch_error *error)
{
  char path[4096];
  snprintf(path, sizeof(path), "%s/factor.txt", model->version_directory);
  FILE *file = fopen(path, "r");
  if (file == NULL) {
    return conch_fail(
        error, CONCH_INVALID_ARG, "model '%s' needs a file factor.txt in its version folder",
        model->name);
  }
  struct model *state = calloc(1, sizeof(*state));
  const int count = state != NULL ? fscanf(file, "%f", &state->factor) : 0;
  fclose(file);
  if (count != 1) {
    free(state);
    return conch_fail(error, CONCH_INVALID_ARG, "factor.txt of '%s' is no number", model->name);
  }
  model->state = state;
  model->backend->host->log(CONCH_LOG_INFO, "the factor has been read");
  return CONCH_OK;
}

void conch_model_finalize(conch_model *model)
{
  free(model->state);
}

int32_t conch_instance_initialize(conch_instance *instance, conch_error *error)
{
  instance->state = calloc(1, sizeof(struct instance));
  return instance->state != NULL ? CONCH_OK : conch_fail(error, CONCH_INTERNAL, "no memory");
}

void conch_instance_finalize(conch_instance *instance)
{
  free(instance->state);
}

/* The response to one request; an error of the server's is its caller's as well. */
static void answer(conch_instance *instance, const conch_request *request)
{
  const struct model *model = instance->model->state;
  const conch_host *host = instance->model->backend->host;
  conch_response response = {0};
  conch_error error;
  const conch_tensor *in = conch_input(request, "IN");
  if (in == NULL || in->datatype != CONCH_FP32) {
    response.code = CONCH_INVALID_ARG;
    response.message = "IN must be FP32";
    host->respond(request, &response, CONCH_RESPONSE_FINAL, &error);
    return;
  }
  float *values = malloc(in->byte_size > 0 ? in->byte_size : 1);
  if (values == NULL) {
    response.code = CONCH_UNAVAILABLE;
    response.message = "no memory for the output";
    host->respond(request, &response, CONCH_RESPONSE_FINAL, &error);
    return;
  }
  const float *given = in->data;
  for (uint64_t index = 0; index < in->byte_size / sizeof(float); index++) {
    values[index] = given[index] * model->factor;
  }
  const conch_tensor out = {
      .name = "OUT",
      .datatype = CONCH_FP32,
      .rank = in->rank,
      .shape = in->shape,
      .data = values,
      .byte_size = in->byte_size};
  const conch_parameter executions = {
      .name = "executions",
      .type = CONCH_PARAMETER_INT,
      .int_value = ((struct instance *)instance->state)->executions};
  response.outputs = &out;
  response.output_count = 1;
  response.parameters = &executions;
  response.parameter_count = 1;
  host->respond(request, &response, CONCH_RESPONSE_FINAL, &error);
  free(values);
}

int32_t conch_instance_execute(
    conch_instance *instance, const conch_request *const *requests, uint32_t count,
    conch_error *error)
{
  (void)error;
  ((struct instance *)instance->state)->executions++;
  for (uint32_t index = 0; index < count; index++) {
    answer(instance, requests[index]);
  }
  return CONCH_OK;
}
