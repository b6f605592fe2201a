/* A decoupled backend in C: each request gets the numbers from 0 to IN - 1, one response for each,
 * from a thread of its own.
 *
 *     gcc -shared -fPIC -O2 -pthread -I ../../serving/backends/native -o libconch_count.so count.c
 */
#include "conch_backend.h"

#include <pthread.h>
#include <stdlib.h>

struct work {
  const conch_host *host;
  const conch_request *request;
  int32_t last;
};

struct instance {
  pthread_mutex_t lock;
  pthread_cond_t idle;
  int running;
};

uint32_t conch_backend_abi_version(void)
{
  return CONCH_BACKEND_ABI_VERSION;
}

int32_t conch_model_initialize(conch_model *model, conch_error *error)
{
  if (!model->is_decoupled) {
    return conch_fail(
        error, CONCH_INVALID_ARG,
        "model '%s' answers any number of times: set model_transaction_policy { decoupled: true }",
        model->name);
  }
  return CONCH_OK;
}

int32_t conch_instance_initialize(conch_instance *instance, conch_error *error)
{
  struct instance *state = calloc(1, sizeof(*state));
  if (state == NULL) {
    return conch_fail(error, CONCH_INTERNAL, "no memory");
  }
  pthread_mutex_init(&state->lock, NULL);
  pthread_cond_init(&state->idle, NULL);
  instance->state = state;
  return CONCH_OK;
}

/* Threads must not outlive what they use. */
void conch_instance_finalize(conch_instance *instance)
{
  struct instance *state = instance->state;
  pthread_mutex_lock(&state->lock);
  while (state->running > 0) {
    pthread_cond_wait(&state->idle, &state->lock);
  }
  pthread_mutex_unlock(&state->lock);
  pthread_cond_destroy(&state->idle);
  pthread_mutex_destroy(&state->lock);
  free(state);
}

static void send_numbers(const struct work *work)
{
  conch_error error;
  const int64_t shape[] = {1};
  for (int32_t number = 0; number < work->last; number++) {
    if (work->host->is_cancelled(work->request)) {
      break;
    }
    const conch_tensor out = {
        .name = "OUT",
        .datatype = CONCH_INT32,
        .rank = 1,
        .shape = shape,
        .data = &number,
        .byte_size = sizeof(number)};
    const conch_response response = {.outputs = &out, .output_count = 1};
    if (work->host->respond(work->request, &response, 0, &error) != CONCH_OK) {
      return; /* the request has failed, and is gone */
    }
  }
  work->host->respond(work->request, NULL, CONCH_RESPONSE_FINAL, &error);
}

struct started {
  struct work work;
  struct instance *instance;
};

static void *run(void *argument)
{
  struct started *started = argument;
  struct instance *instance = started->instance;
  send_numbers(&started->work);
  free(started);
  pthread_mutex_lock(&instance->lock);
  instance->running--;
  pthread_cond_signal(&instance->idle);
  pthread_mutex_unlock(&instance->lock);
  return NULL;
}

static int start(conch_instance *instance, const conch_request *request)
{
  struct instance *state = instance->state;
  const conch_tensor *in = conch_input(request, "IN");
  struct started *started = malloc(sizeof(*started));
  pthread_t thread;
  if (in == NULL || in->byte_size != sizeof(int32_t) || started == NULL) {
    free(started);
    return -1;
  }
  const struct work work = {instance->model->backend->host, request, *(const int32_t *)in->data};
  started->work = work;
  started->instance = state;
  pthread_mutex_lock(&state->lock);
  state->running++;
  pthread_mutex_unlock(&state->lock);
  if (pthread_create(&thread, NULL, run, started) != 0) {
    pthread_mutex_lock(&state->lock);
    state->running--;
    pthread_mutex_unlock(&state->lock);
    free(started);
    return -1;
  }
  pthread_detach(thread);
  return 0;
}

int32_t conch_instance_execute(
    conch_instance *instance, const conch_request *const *requests, uint32_t count,
    conch_error *error)
{
  const conch_host *host = instance->model->backend->host;
  for (uint32_t index = 0; index < count; index++) {
    if (start(instance, requests[index]) != 0) {
      const conch_response response = {
          .code = CONCH_UNAVAILABLE, .message = "no thread could be started"};
      host->respond(requests[index], &response, CONCH_RESPONSE_FINAL, error);
    }
  }
  return CONCH_OK;
}
