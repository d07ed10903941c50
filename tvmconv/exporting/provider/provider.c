/* An execution provider for onnxruntime: it claims the convolutions, with epilogues, and networks that the library has. */
#include "threads.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tvmconv-call.h"
#include "tvmconv-whole.h"

#define EXPORTED __attribute__((visibility("default")))

/* Factory of providers, with the name under which the library was registered. */
struct factory {
  ort_factory base;
  char *name;
};
struct provider {
  ort_ep base;
  const struct factory *factory;
  const ort_logger *logger;
  ort_memory *memory; /* the session's, for buffers */
  int threads, warned, asked; /* asked: the session option `claims`; -1: absent */
  /* Decisions about the graph offered last, which is compiled next. */
  enum claims claims;
  struct parts parts;
  int claimed, is_rest; /* networks were claimed; the graph is a node's subgraph, or the rest after networks were claimed */
  char *list, *inputs, *outputs; /* session options; NULL: absent */
};

struct computed {
  ort_compute base;
  struct kernel *kernel;
  struct whole *whole; /* NULL: it is a kernel */
};

static ort_status *create_state(ort_compute *self, void *context, void **state) {
  (void)self, (void)context;
  *state = NULL;
  return NULL;
}

static void release_state(ort_compute *self, void *state) { (void)self, (void)state; }

static ort_status *compute(ort_compute *self, void *state, ort_context *context) {
  const struct computed *made = (const struct computed *)self;
  (void)state;
  return made->whole != NULL ? run_whole(made->whole, context) : run_kernel(made->kernel, context);
}

static void free_compute(struct computed *made) {
  if (made != NULL) {
    free_kernel(made->kernel);
    free_whole(made->whole);
  }
  free(made);
}

static void release_computes(ort_ep *self, ort_compute **computes, size_t count) {
  (void)self;
  for (size_t i = 0; i < count; ++i) free_compute((struct computed *)computes[i]);
}

static ort_status *compile_graph(const struct provider *provider, const ort_graph *graph, const ort_node *fused, ort_compute **result) {
  struct graph read;
  if (!read_graph(graph, &read)) return fail(ORT_EP_FAIL, "a graph that was claimed cannot be read, or there is no memory");
  struct computed *made = calloc(1, sizeof *made);
  ort_status *status = made == NULL ? fail(ORT_FAIL, "out of memory") : NULL;
  if (status == NULL) {
    made->base = (ort_compute){ORT_NEEDED, create_state, compute, release_state};
    status = provider->claims == NETWORK ? make_whole(provider->parts.networks, provider->parts.count, provider->threads, provider->memory, fused, &made->whole)
                                         : make_kernel(&read, provider->threads, provider->memory, fused, &made->kernel);
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
  (void)contexts; /* for models with compiled code, which this provider does not write */
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

/* Warns once about the nodes that are left to onnxruntime, and says how to export them. */
__attribute__((format(printf, 2, 3))) static void warn(struct provider *provider, const char *format, ...) {
  char text[1024] = "tvmconv: onnxruntime itself computes ";
  const size_t begin = strlen(text);
  va_list values;
  if (provider->warned) return;
  provider->warned = 1;
  va_start(values, format);
  vsnprintf(text + begin, sizeof text - begin, format, values);
  va_end(values);
  const size_t end = strlen(text);
  snprintf(text + end, sizeof text - end,
           ". For all shapes of a model: tvmconv export-onnxruntime MODEL.onnx --shape NAME=1x3x224x224 -o provider.so, or NAME=?x3x?x? for any size");
  good(ort.log(provider->logger, ORT_WARNING, text, "tvmconv", 0, "GetCapability"));
}

static void warn_of_convolutions(struct provider *provider, const struct graph *graph, const struct matches *found, size_t missing) {
  const char *name = "";
  good(ort.node_name(graph->nodes[found->first_missing].node, &name));
  warn(provider, "%zu of %zu convolutions, the first of them %.300s: %s", missing, found->convolutions, name, found->reason);
}

/* Claims the nodes with an owner's number as one node. */
static ort_status *claim(const struct graph *graph, const int *owners, int number, ort_support *support) {
  ort_fusion_options options = {ORT_NEEDED, true};
  size_t count = 0;
  const ort_node **nodes = calloc(graph->count + 1, sizeof *nodes);
  if (nodes == NULL) return fail(ORT_FAIL, "out of memory");
  for (size_t i = 0; i < graph->count; ++i)
    if (owners[i] == number) nodes[count++] = graph->nodes[i].node;
  ort_status *status = ort.fuse(support, nodes, count, &options);
  free(nodes);
  return status;
}

/* Returns the claims that the session option names, or that were measured to be the fastest for a graph. */
static enum claims claims_of(const struct provider *provider, uint64_t graph) {
  if (provider->asked >= 0) return (enum claims)provider->asked;
  if (provider->parts.count > 0) return NETWORK;
  for (int i = 0; i < tvmconv_name_rt_decision_count; ++i)
    if (tvmconv_name_rt_decisions[i].graph == graph) return tvmconv_name_rt_decisions[i].claims;
  return CONVOLUTIONS;
}

EXPORTED const char *tvmconv_provider_refusal(void);

/* Reason why no part of the last graph offered to this thread has a network; NULL: one has. onnxruntime only logs it. */
static __thread const char *refusal;
const char *tvmconv_provider_refusal(void) { return refusal != NULL ? refusal : ""; }

static ort_status *refuse(const struct provider *provider, const char *why) {
  if (!provider->claimed) refusal = why;
  return fail(ORT_FAIL, "%s", why);
}

/* Claims the convolutions that the library has kernels for; none if they are the lesser part of a graph: onnxruntime's own kernels
 * pass blocked layouts to each other, and each of ours would need conversions. */
static ort_status *claim_kernels(struct provider *provider, struct graph *graph, int *owners, ort_support *support) {
  struct matches found;
  if (!find_matches(graph, &found)) return fail(ORT_FAIL, "out of memory");
  size_t count = found.count;
  ort_status *status = NULL;
  if (found.missing > 0) {
    if (found.ours < found.theirs) count = 0;
    warn_of_convolutions(provider, graph, &found, count > 0 ? found.missing : found.convolutions);
  }
  memset(owners, 0, graph->count * sizeof *owners);
  for (size_t i = 0; i < count; ++i)
    for (int k = 0; k < found.list[i].node_count; ++k) owners[found.list[i].nodes[k]] = (int)i + 1;
  for (size_t i = 0; i < count && status == NULL; ++i) status = claim(graph, owners, (int)i + 1, support);
  free(found.list);
  return status;
}

/* Finds the networks of a graph, and records it. Only a library without kernels and networks computes its identity, which reads all
 * weights. Subgraphs of nodes have none, nor has the rest after networks were claimed, which onnxruntime offers again. */
static ort_status *identify(struct provider *provider, const ort_graph *graph, const struct graph *read, uint64_t hash, int *owners) {
  const ort_node *parent = NULL;
  struct parts *parts = &provider->parts;
  uint64_t identity = 0;
  ort_status *status = NULL;
  parts->count = 0;
  provider->is_rest = !good(ort.parent(graph, &parent)) || parent != NULL;
  if (!provider->is_rest) status = find_networks(read, provider->list, parts, owners);
  if (status != NULL) {
    refusal = "out of memory";
    return status;
  }
  provider->is_rest |= provider->claimed && parts->count == 0;
  if (!provider->is_rest) refusal = parts->count == 0 ? parts->why : NULL;
  for (int i = 0; i < parts->count; ++i) note_graph(hash, parts->networks[i]->graph);
  if (!provider->is_rest && tvmconv_name_rt_network_count == 0 && tvmconv_name_kernel_count == 0)
    status = find_identity(read, provider->inputs, provider->outputs, &identity);
  if (status == NULL && parts->count == 0) note_graph(hash, identity);
  return status;
}

static ort_status *claim_networks(struct provider *provider, const struct graph *graph, const int *owners, ort_support *support) {
  ort_status *status = NULL;
  if (provider->is_rest) return NULL;
  if (provider->parts.count == 0) return fail(ORT_INVALID_ARGUMENT, "the graph cannot be claimed as a network: %s", refusal);
  provider->claimed = 1;
  const char *why;
  const struct network *missing = missing_part(graph, provider->list, &provider->parts, owners, &why);
  if (missing != NULL) warn(provider, "the part of a model that ends with %.300s: %s", missing->tensors[missing->input_count].name, why);
  for (int i = 0; i < provider->parts.count && status == NULL; ++i) status = claim(graph, owners, i + 1, support);
  return status;
}

static ort_status *claim_graph(struct provider *provider, struct graph *graph, int *owners, ort_support *support) {
  const int networks_alone = tvmconv_name_kernel_count == 0 && tvmconv_name_rt_network_count > 0;
  switch (provider->claims) {
    case NETWORK: return claim_networks(provider, graph, owners, support);
    case CONVOLUTIONS:
      if (networks_alone && provider->asked < 0 && !provider->is_rest) warn(provider, "a model: %s", refusal);
      return claim_kernels(provider, graph, owners, support);
    default: return NULL;
  }
}

static ort_status *capability(ort_ep *self, const ort_graph *graph, ort_support *support) {
  struct provider *provider = (struct provider *)self;
  struct graph read;
  if (!read_graph(graph, &read)) return refuse(provider, "onnxruntime's graph cannot be read, or there is no memory");
  int *owners = calloc(read.count + 1, sizeof *owners);
  const uint64_t hash = hash_of(&read);
  ort_status *status = owners != NULL ? identify(provider, graph, &read, hash, owners) : refuse(provider, "out of memory");
  if (status == NULL) {
    provider->claims = claims_of(provider, hash);
    status = claim_graph(provider, &read, owners, support);
  }
  free(owners);
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

/* onnxruntime calls these functions without a check for NULL. Arrays are in the CPU's memory. */
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

/* Reads a session option of the provider's device, to be freed; NULL: it was not given. */
static ort_status *read_option(const struct provider *provider, const ort_options *options, const char *name, char **value) {
  char key[512];
  size_t size = 0;
  int given = 0;
  snprintf(key, sizeof key, "ep.%s.%s", provider->factory->name, name);
  for (char *c = key; *c != '\0'; ++c) *c = (char)(*c >= 'A' && *c <= 'Z' ? *c - 'A' + 'a' : *c);
  if (!good(ort.has_entry(options, key, &given)) || !given || !good(ort.read_entry(options, key, NULL, &size))) return NULL;
  *value = calloc(size + 1, 1);
  return *value != NULL ? ort.read_entry(options, key, *value, &size) : fail(ORT_FAIL, "out of memory");
}

/* Reads the session options of the provider's device. */
static ort_status *read_options(struct provider *provider, const ort_options *options) {
  static const char *const names[] = {"nothing", "convolutions", "network"};
  char *claims = NULL;
  ort_status *status = read_option(provider, options, "inputs", &provider->inputs);
  if (status == NULL) status = read_option(provider, options, "outputs", &provider->outputs);
  if (status == NULL) status = read_option(provider, options, "networks", &provider->list);
  if (status == NULL) status = read_option(provider, options, "claims", &claims);
  provider->asked = -1;
  for (int i = 0; claims != NULL && i < 3; ++i)
    if (strcmp(claims, names[i]) == 0) provider->asked = i;
  if (status == NULL && provider->list != NULL && !is_list(provider->list))
    status = fail(ORT_INVALID_ARGUMENT, "the option networks is '%.64s'; allowed: identities of graphs, numbers between commas", provider->list);
  if (status == NULL && claims != NULL && provider->asked < 0)
    status = fail(ORT_INVALID_ARGUMENT, "the option claims is '%.32s'; allowed: nothing, convolutions, network", claims);
  free(claims);
  return status;
}

static void free_provider(struct provider *provider) {
  if (provider->memory != NULL) ort.release_memory(provider->memory);
  free(provider->parts.networks);
  free(provider->parts.reasons);
  free(provider->list);
  free(provider->inputs);
  free(provider->outputs);
  free(provider);
}

static ort_status *create_provider(ort_factory *self, const ort_device *const *devices, const void *const *metadata, size_t count,
                                   const ort_options *options, const ort_logger *logger, ort_ep **provider) {
  (void)devices, (void)metadata, (void)count;
  struct provider *made = calloc(1, sizeof *made);
  if (made == NULL) return fail(ORT_FAIL, "out of memory");
  made->base.version = ORT_NEEDED;
  made->base.name = provider_name;
  made->base.capability = capability;
  made->base.compile = compile;
  made->base.release_computes = release_computes;
  made->factory = (struct factory *)self;
  made->logger = logger;
  /* One task for each processor; onnxruntime distributes them over the session's threads. */
  made->threads = usable_processors();
  made->parts.networks = calloc((size_t)tvmconv_name_rt_network_count + 1, sizeof *made->parts.networks);
  made->parts.reasons = calloc((size_t)tvmconv_name_rt_network_count + 1, sizeof *made->parts.reasons);
  enum { ARENA = 1, DEFAULT_KIND = 0 };
  const int has_room = made->parts.networks != NULL && made->parts.reasons != NULL;
  ort_status *status = has_room ? read_options(made, options) : fail(ORT_FAIL, "out of memory");
  if (status == NULL) status = ort.create_memory(ARENA, DEFAULT_KIND, &made->memory);
  if (status != NULL) {
    refusal = "the provider cannot be made, for a wrong option or want of memory";
    free_provider(made);
    return status;
  }
  *provider = &made->base;
  return NULL;
}

static void release_provider(ort_factory *self, ort_ep *provider) {
  (void)self;
  free_provider((struct provider *)provider);
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
  if (most < 1) return fail(ORT_INVALID_ARGUMENT, "onnxruntime has no room for a provider");
  if (!tvmconv_name_supported() || (tvmconv_name_kernel_count == 0 && tvmconv_name_rt_network_count > 0 && !runs_networks()))
    return fail(ORT_FAIL, "this CPU runs nothing of what is for %s: export the library again for it, with --target", TVMCONV_TARGETS);
  struct factory *made = calloc(1, sizeof *made);
  if (made != NULL) made->name = strdup(name != NULL && name[0] != '\0' ? name : "tvmconv");
  if (made == NULL || made->name == NULL) {
    free(made);
    return fail(ORT_FAIL, "out of memory");
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
