/* An execution provider for onnxruntime: it takes convolutions, with what follows them, that the library has kernels for. */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "tvmconv-graph.h"

#define EXPORTED __attribute__((visibility("default")))

/* Compares, of a name that its registration gives. */
struct factory {
  ort_factory base;
  char *name;
};
struct provider {
  ort_ep base;
  const struct factory *factory;
  const ort_logger *logger;
  int threads, warned;
};

/* An input of a kernel: fixed, or the fused node's of this number. */
struct input {
  void *fixed;
  size_t number;
};
struct computed {
  ort_compute base;
  const tvmconv_name_kernel *kernel;
  struct problem problem;
  struct input inputs[OPERANDS];
  int packed, threads;
};

static ort_status *fail(int code, const char *format, const char *text) {
  char message[512];
  snprintf(message, sizeof message, format, text);
  return ort.create_status(code, message);
}

/* The kernels that onnxruntime's threads work for: a task of tvmconv's is one of theirs. */
struct loop {
  void (*task)(void *argument, int index);
  void *argument;
};

static void run_task(void *given, size_t index) {
  struct loop *loop = given;
  loop->task(loop->argument, (int)index);
}

static int parallel_for(void *context, int count, void (*task)(void *argument, int index), void *argument) {
  struct loop loop = {task, argument};
  return good(ort.parallel_for(context, run_task, (size_t)count, 0, &loop)) ? 0 : -1;
}

static ort_status *create_state(ort_compute *self, void *context, void **state) {
  (void)self, (void)context;
  *state = NULL;
  return NULL;
}

static void release_state(ort_compute *self, void *state) { (void)self, (void)state; }

/* A model may declare shapes that its tensors have not: a kernel is for one shape alone. */
static ort_status *check_shape(const ort_value *value, const struct problem *problem, int is_data) {
  ort_shape *shape = NULL;
  int64_t dims[AXES + 2];
  size_t rank = 0;
  ort_status *status = ort.tensor_shape(value, &shape);
  if (status == NULL) status = ort.rank(shape, &rank);
  int right = rank == (size_t)problem->rank + 2;
  if (status == NULL && right) status = ort.dims(shape, dims, rank);
  if (shape != NULL) ort.release_shape(shape);
  if (status != NULL) return status;
  right = right && dims[0] == problem->batch && dims[1] == (is_data ? problem->in_channels : problem->out_channels) &&
          memcmp(dims + 2, is_data ? problem->in : problem->out, (size_t)problem->rank * sizeof *dims) == 0;
  return right ? NULL : fail(ORT_INVALID_ARGUMENT, "tvmconv: %s has another shape than the model declares for it", is_data ? "the data of a convolution" : "what is added to a convolution");
}

static ort_status *compute(ort_compute *self, void *state, ort_context *context) {
  const struct computed *made = (const struct computed *)self;
  const struct problem *problem = &made->problem;
  const void *arrays[OPERANDS];
  const tvmconv_name_kernel *kernel = made->kernel;
  (void)state;
  for (int i = 0; i < kernel->inputs; ++i) {
    arrays[i] = made->inputs[i].fixed;
    if (arrays[i] != NULL) continue;
    const ort_value *value = NULL;
    void *data = NULL;
    int is_data = i == 0, is_residual = strcmp(kernel->arrays[i].name, "residual") == 0;
    ort_status *status = ort.context_input(context, made->inputs[i].number, &value);
    if (status == NULL && value == NULL) status = fail(ORT_EP_FAIL, "tvmconv: %s is missing", kernel->arrays[i].name);
    if (status == NULL && (is_data || is_residual)) status = check_shape(value, problem, is_data);
    if (status == NULL) status = ort.tensor_data((ort_value *)(uintptr_t)value, &data);
    if (status != NULL) return status;
    arrays[i] = data;
  }
  int64_t dims[AXES + 2] = {problem->batch, problem->out_channels};
  memcpy(dims + 2, problem->out, sizeof problem->out);
  ort_value *output = NULL;
  void *result = NULL;
  ort_status *status = ort.context_output(context, 0, dims, (size_t)problem->rank + 2, &output);
  if (status == NULL) status = ort.tensor_data(output, &result);
  if (status != NULL) return status;
  tvmconv_name_call call = {parallel_for, context, made->threads, NULL, 0};
  int failed = made->packed ? kernel->run_packed(&call, arrays, result) : kernel->run(&call, arrays, result);
  return failed == tvmconv_name_OK ? NULL : fail(ORT_EP_FAIL, "tvmconv: %s", tvmconv_name_error_string(failed));
}

static void free_compute(struct computed *made) {
  if (made == NULL) return;
  for (int i = 0; i < OPERANDS; ++i) free(made->inputs[i].fixed);
  free(made);
}

static void release_computes(ort_ep *self, ort_compute **computes, size_t count) {
  (void)self;
  for (size_t i = 0; i < count; ++i) free_compute((struct computed *)computes[i]);
}

#define HUGE_PAGE_BYTES ((size_t)2 << 20)

/* Large ones in huge pages, where the system has any: of a packed filter, each call reads all (tvmconv/runtime/pages.py). */
static void *allocate(size_t bytes) {
  size_t whole = bytes / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES, alignment = whole > 0 ? HUGE_PAGE_BYTES : tvmconv_name_ALIGNMENT;
  void *block = aligned_alloc(alignment, (bytes / alignment + 1) * alignment);
#ifdef MADV_HUGEPAGE
  if (block != NULL && whole > 0) madvise(block, whole, MADV_HUGEPAGE); /* refused, it is only slower */
#endif
  return block;
}

/* A fixed input as the kernel takes it, NULL if it is not fixed. Scales and slopes are f32, one for each channel. */
static void *fixed_input(struct computed *made, const struct graph *graph, const struct match *match, enum operand what,
                         const tvmconv_name_array *array) {
  const ort_value_info *value = match->operands[what];
  if (what == SCALES || what == SLOPE) {
    size_t count = 0;
    float *numbers = fixed_numbers(value, array->elements, &count), *spread = allocate(array->bytes);
    for (size_t i = 0; numbers != NULL && spread != NULL && i < array->elements; ++i) spread[i] = numbers[count == 1 ? 0 : i];
    if (numbers == NULL) {
      free(spread);
      spread = NULL;
    }
    free(numbers);
    return spread;
  }
  if (what == BIAS && match->fold_count > 0) {
    float *bias = allocate(array->bytes);
    if (bias != NULL && folded(graph, match, NULL, bias)) return bias;
    free(bias);
    return NULL;
  }
  const void *data = fixed_data(value);
  if (data == NULL) return NULL;
  void *copy = allocate(array->bytes);
  if (copy == NULL) return NULL;
  memcpy(copy, data, array->bytes);
  if (what != FILTER) return copy;
  void *packed = allocate(made->kernel->packed_bytes());
  if (packed == NULL || (match->fold_count > 0 && !folded(graph, match, copy, NULL)) ||
      made->kernel->pack(copy, packed) != tvmconv_name_OK) {
    free(packed);
    packed = NULL;
  }
  free(copy);
  made->packed = packed != NULL;
  return packed;
}

static ort_status *bind_inputs(struct computed *made, const struct graph *graph, const struct match *match, const ort_node *fused) {
  static const char *const names[] = {"data", "filter", "bias", "scale", "slope", "residual"};
  size_t count = 0;
  ort_status *status = ort.input_count(fused, &count);
  if (status != NULL) return status;
  const ort_value_info **inputs = calloc(count + 1, sizeof *inputs);
  if (inputs == NULL) return fail(ORT_FAIL, "tvmconv: %s", "out of memory");
  status = count > 0 ? ort.inputs(fused, inputs, count) : NULL;
  for (int i = 0; status == NULL && i < made->kernel->inputs; ++i) {
    const tvmconv_name_array *array = &made->kernel->arrays[i];
    enum operand what = DATA;
    while (strcmp(names[what], array->name) != 0) ++what;
    const ort_value_info *value = match->operands[what];
    made->inputs[i].fixed = fixed_input(made, graph, match, what, array);
    if (made->inputs[i].fixed != NULL) continue;
    size_t number = 0;
    while (number < count && strcmp(name_of(inputs[number]), name_of(value)) != 0) ++number;
    made->inputs[i].number = number;
    if (number == count) status = fail(ORT_EP_FAIL, "tvmconv: onnxruntime gives no %s to the node that it fused, or there is no memory", array->name);
  }
  free(inputs);
  return status;
}

static ort_status *compile_graph(const struct provider *provider, const ort_graph *graph, const ort_node *fused, ort_compute **result) {
  struct graph read;
  struct match match = {0};
  size_t convolution = 0;
  if (!read_graph(graph, &read)) return fail(ORT_EP_FAIL, "tvmconv: %s", "a graph that was claimed cannot be read");
  while (convolution < read.count && !is_convolution(&read.nodes[convolution])) ++convolution;
  if (convolution < read.count) find_match(&read, convolution, &match);
  ort_status *status = NULL;
  if (match.kernel == NULL || (size_t)match.node_count != read.count)
    status = fail(ORT_EP_FAIL, "tvmconv: %s", "onnxruntime changed a graph after it was claimed; please report it");
  struct computed *made = status == NULL ? calloc(1, sizeof *made) : NULL;
  if (made != NULL) {
    made->base = (ort_compute){ORT_NEEDED, create_state, compute, release_state};
    made->kernel = match.kernel;
    made->problem = match.problem;
    made->threads = provider->threads;
    status = bind_inputs(made, &read, &match, fused);
  } else if (status == NULL) {
    status = fail(ORT_FAIL, "tvmconv: %s", "out of memory");
  }
  free_graph(&read);
  if (status != NULL) {
    free_compute(made);
    return status;
  }
  *result = &made->base;
  return NULL;
}

static ort_status *compile(ort_ep *self, const ort_graph **graphs, const ort_node **fused, size_t count, ort_compute **computes,
                           ort_node **contexts) {
  (void)contexts; /* of models that keep what was compiled, which this provider does not */
  ort_status *status = NULL;
  size_t done = 0;
  for (; done < count && status == NULL; ++done) status = compile_graph((struct provider *)self, graphs[done], fused[done], &computes[done]);
  if (status != NULL)
    for (size_t i = 0; i + 1 < done; ++i) {
      free_compute((struct computed *)computes[i]);
      computes[i] = NULL;
    }
  return status;
}

static void warn(struct provider *provider, size_t missing, size_t all, const struct node *node, const char *reason) {
  char text[768];
  const char *name = "";
  if (provider->warned) return;
  provider->warned = 1;
  good(ort.node_name(node->node, &name));
  snprintf(text, sizeof text,
           "tvmconv: onnxruntime itself computes %zu of %zu convolutions, the first of them %s: %s. For all shapes of a model: "
           "tvmconv export-onnxruntime MODEL.onnx --shape NAME=1x3x224x224 -o provider.so",
           missing, all, name, reason);
  good(ort.log(provider->logger, ORT_WARNING, text, "tvmconv", 0, "GetCapability"));
}

static ort_status *claim(const struct graph *graph, const struct match *match, ort_support *support) {
  const ort_node *nodes[MOST_NODES];
  ort_fusion_options options = {ORT_NEEDED, true};
  for (int i = 0; i < match->node_count; ++i) nodes[i] = graph->nodes[match->nodes[i]].node;
  return ort.fuse(support, nodes, (size_t)match->node_count, &options);
}

/* Claims what the library has kernels for. Of a graph of which it has the lesser part, nothing: onnxruntime's own kernels hand on
 * blocked layouts, which each of ours would interrupt. */
static ort_status *capability(ort_ep *self, const ort_graph *graph, ort_support *support) {
  struct provider *provider = (struct provider *)self;
  struct graph read;
  ort_status *status = NULL;
  size_t all = 0, found = 0, first = 0;
  double ours = 0, theirs = 0;
  const char *reason = NULL;
  if (tvmconv_name_rt_declines) return NULL;
  if (!read_graph(graph, &read)) return fail(ORT_EP_FAIL, "tvmconv: %s", "onnxruntime's graph cannot be read");
  for (size_t i = 0; i < read.count; ++i) all += (size_t)is_convolution(&read.nodes[i]);
  struct match *matches = calloc(all + 1, sizeof *matches);
  if (matches == NULL) status = fail(ORT_FAIL, "tvmconv: %s", "out of memory");
  /* A sum of what two convolutions compute belongs to the later one: then the other is there already. */
  for (size_t i = read.count; i-- > 0 && status == NULL;) {
    struct match *match = &matches[found];
    if (!is_convolution(&read.nodes[i])) continue;
    find_match(&read, i, match);
    *(match->kernel != NULL ? &ours : &theirs) += operations(&match->problem);
    if (match->kernel == NULL) {
      first = i;
      reason = match->reason;
      continue;
    }
    for (int k = 0; k < match->node_count; ++k) read.nodes[match->nodes[k]].taken = 1;
    ++found;
  }
  if (status == NULL && found < all) {
    if (ours < theirs) found = 0;
    warn(provider, all - found, all, &read.nodes[first], reason);
  }
  for (size_t i = 0; i < found && status == NULL; ++i) status = claim(&read, &matches[i], support);
  free(matches);
  free_graph(&read);
  return status;
}

static const char *provider_name(const ort_ep *self) { return ((const struct provider *)self)->factory->name; }
static const char *factory_name(const ort_factory *self) { return ((const struct factory *)self)->name; }
static const char *vendor(const ort_factory *self) { return (void)self, "tvmconv"; }
static uint32_t vendor_id(const ort_factory *self) { return (void)self, 0; }
static const char *own_version(const ort_factory *self) { return (void)self, TVMCONV_VERSION; }
static bool is_stream_aware(const ort_factory *self) { return (void)self, false; }

static ort_status *supported_devices(ort_factory *self, const ort_device *const *devices, size_t count, ort_ep_device **found,
                                     size_t most, size_t *number) {
  *number = 0;
  for (size_t i = 0; i < count && *number < most; ++i) {
    if (ort.device_type(devices[i]) != 0) continue; /* no CPU */
    ort_status *status = ort.create_device(self, devices[i], NULL, NULL, &found[*number]);
    if (status != NULL) return status;
    ++*number;
  }
  return NULL;
}

/* onnxruntime calls these without looking whether they are there. Arrays are the CPU's own. */
static ort_status *create_allocator(ort_factory *self, const void *memory, const void *options, void **allocator) {
  (void)self, (void)memory, (void)options;
  *allocator = NULL;
  return NULL;
}
static void release_allocator(ort_factory *self, void *allocator) { (void)self, (void)allocator; }
static ort_status *create_data_transfer(ort_factory *self, void **transfer) {
  (void)self;
  *transfer = NULL;
  return NULL;
}

static ort_status *create_provider(ort_factory *self, const ort_device *const *devices, const void *const *metadata, size_t count,
                                   const void *options, const ort_logger *logger, ort_ep **provider) {
  (void)devices, (void)metadata, (void)count, (void)options;
  struct provider *made = calloc(1, sizeof *made);
  if (made == NULL) return fail(ORT_FAIL, "tvmconv: %s", "out of memory");
  cpu_set_t cpus;
  made->base.version = ORT_NEEDED;
  made->base.name = provider_name;
  made->base.capability = capability;
  made->base.compile = compile;
  made->base.release_computes = release_computes;
  made->factory = (struct factory *)self;
  made->logger = logger;
  /* A task for each core: onnxruntime gives them to as many threads as the session has. */
  made->threads = sched_getaffinity(0, sizeof cpus, &cpus) == 0 ? CPU_COUNT(&cpus) : 1;
  *provider = &made->base;
  return NULL;
}

static void release_provider(ort_factory *self, ort_ep *provider) {
  (void)self;
  free(provider);
}

EXPORTED ort_status *CreateEpFactories(const char *name, const ort_base *base, const ort_logger *logger, ort_factory **factories,
                                       size_t most, size_t *count);
EXPORTED ort_status *ReleaseEpFactory(ort_factory *factory);

ort_status *CreateEpFactories(const char *name, const ort_base *base, const ort_logger *logger, ort_factory **factories,
                              size_t most, size_t *count) {
  static void *const *loaded;
  void *const *slots = base->functions(ORT_NEEDED), *const *first = slots != NULL ? slots : base->functions(1);
  (void)logger;
  if (slots == NULL || (loaded != NULL && loaded != slots)) {
    ort_status *(*create_status)(int code, const char *text);
    char text[256];
    memcpy(&create_status, &first[0], sizeof first[0]);
    snprintf(text, sizeof text,
             slots == NULL ? "tvmconv: this is onnxruntime %s, and providers need 1.23 or later: pip install -U onnxruntime"
                           : "tvmconv: another onnxruntime of this process has loaded this library; give onnxruntime %s a copy of it",
             base->version());
    return create_status(ORT_FAIL, text);
  }
  loaded = slots;
#define LOAD(place, version, name, result, arguments) memcpy(&ort.name, &slots[place], sizeof slots[place]);
  ORT_FUNCTIONS(LOAD)
  slots = ort.ep_functions();
  ORT_EP_FUNCTIONS(LOAD)
  if (most < 1) return fail(ORT_INVALID_ARGUMENT, "tvmconv: %s", "onnxruntime has no room for a provider");
  if (!tvmconv_name_supported())
    return fail(ORT_FAIL, "tvmconv: this CPU does not run kernels for %s: export the library again for it, with --target", TVMCONV_TARGETS);
  struct factory *made = calloc(1, sizeof *made);
  if (made != NULL) made->name = strdup(name != NULL && name[0] != '\0' ? name : "tvmconv");
  if (made == NULL || made->name == NULL) {
    free(made);
    return fail(ORT_FAIL, "tvmconv: %s", "out of memory");
  }
  made->base = (ort_factory){ORT_NEEDED, factory_name, vendor, supported_devices, create_provider, release_provider, vendor_id,
                             own_version, NULL, create_allocator, release_allocator, create_data_transfer, is_stream_aware, NULL};
  factories[0] = &made->base;
  *count = 1;
  return NULL;
}

ort_status *ReleaseEpFactory(ort_factory *factory) {
  free(((struct factory *)factory)->name);
  free(factory);
  return NULL;
}
