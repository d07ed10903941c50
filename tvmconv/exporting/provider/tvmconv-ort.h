/* Functions of onnxruntime's C API that a provider uses, by their indices in its tables.
 *
 * A table only grows at its end, and the tables of a released version never change. The second number is the version of the
 * interface that first had the function; version 23 is onnxruntime 1.23, the first with plug-in providers.
 */
#ifndef TVMCONV_ORT_H
#define TVMCONV_ORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { ORT_NEEDED = 23 };
enum { ORT_FAIL = 1, ORT_INVALID_ARGUMENT = 2, ORT_EP_FAIL = 11 };
enum { ORT_WARNING = 2 };
enum { ORT_FLOAT = 1, ORT_INT64 = 7, ORT_FLOAT16 = 10, ORT_BFLOAT16 = 16 };
enum { ORT_ATTRIBUTE_INT = 1, ORT_ATTRIBUTE_INTS, ORT_ATTRIBUTE_FLOAT, ORT_ATTRIBUTE_FLOATS, ORT_ATTRIBUTE_STRING, ORT_ATTRIBUTE_STRINGS };

typedef struct ort_status ort_status;
typedef struct ort_value ort_value;
typedef struct ort_value_info ort_value_info;
typedef struct ort_type ort_type;
typedef struct ort_shape ort_shape;
typedef struct ort_graph ort_graph;
typedef struct ort_node ort_node;
typedef struct ort_attribute ort_attribute;
typedef struct ort_context ort_context;
typedef struct ort_logger ort_logger;
typedef struct ort_memory ort_memory;
typedef struct ort_allocator ort_allocator;
typedef struct ort_options ort_options;
typedef struct ort_device ort_device;
typedef struct ort_ep_device ort_ep_device;
typedef struct ort_support ort_support;
typedef struct ort_ep ort_ep;
typedef struct ort_factory ort_factory;
typedef struct ort_compute ort_compute;

typedef struct ort_fusion_options {
  uint32_t version;
  bool drop_constant_initializers;
} ort_fusion_options;

#define ORT_FUNCTIONS(F)                                                                                             \
  F(0, 1, create_status, ort_status *, (int code, const char *text))                                                 \
  F(51, 1, tensor_data, ort_status *, (ort_value *, void **))                                                        \
  F(55, 1, tensor_type, ort_status *, (const ort_type *, const ort_shape **))                                        \
  F(60, 1, element_type, ort_status *, (const ort_shape *, int *))                                                   \
  F(61, 1, rank, ort_status *, (const ort_shape *, size_t *))                                                        \
  F(62, 1, dims, ort_status *, (const ort_shape *, int64_t *, size_t))                                               \
  F(65, 1, tensor_shape, ort_status *, (const ort_value *, ort_shape **))                                            \
  F(69, 1, create_memory, ort_status *, (int arena, int kind, ort_memory **))                                        \
  F(75, 1, allocate, ort_status *, (ort_allocator *, size_t, void **))                                               \
  F(76, 1, release, ort_status *, (ort_allocator *, void *))                                                         \
  F(90, 1, context_input, ort_status *, (const ort_context *, size_t, const ort_value **))                           \
  F(91, 1, context_output, ort_status *, (ort_context *, size_t, const int64_t *, size_t, ort_value **))             \
  F(93, 1, release_status, void, (ort_status *))                                                                     \
  F(94, 1, release_memory, void, (ort_memory *))                                                                     \
  F(99, 1, release_shape, void, (ort_shape *))                                                                       \
  F(132, 5, release_allocator, void, (ort_allocator *))                                                              \
  F(237, 14, has_entry, ort_status *, (const ort_options *, const char *, int *))                                    \
  F(238, 14, read_entry, ort_status *, (const ort_options *, const char *, char *, size_t *))                        \
  F(247, 15, log, ort_status *, (const ort_logger *, int, const char *, const char *, int, const char *))            \
  F(253, 15, context_allocator, ort_status *, (const ort_context *, const ort_memory *, ort_allocator **))           \
  F(272, 17, read_attribute, ort_status *, (const ort_attribute *, int, void *, size_t, size_t *))                   \
  F(274, 17, parallel_for, ort_status *, (const ort_context *, void (*)(void *, size_t), size_t, size_t, void *))    \
  F(289, 22, value_name, ort_status *, (const ort_value_info *, const char **))                                      \
  F(290, 22, value_type, ort_status *, (const ort_value_info *, const ort_type **))                                  \
  F(307, 22, device_type, int, (const ort_device *))                                                                 \
  F(317, 22, ep_functions, const void *, (void))                                                                     \
  F(326, 23, initializer, ort_status *, (const ort_value_info *, const ort_value **))                                \
  F(330, 23, is_graph_output, ort_status *, (const ort_value_info *, bool *))                                        \
  F(331, 23, is_constant, ort_status *, (const ort_value_info *, bool *))                                            \
  F(344, 23, node_count, ort_status *, (const ort_graph *, size_t *))                                                \
  F(345, 23, nodes, ort_status *, (const ort_graph *, const ort_node **, size_t))                                    \
  F(346, 23, parent, ort_status *, (const ort_graph *, const ort_node **))                                           \
  F(349, 23, node_name, ort_status *, (const ort_node *, const char **))                                             \
  F(350, 23, node_type, ort_status *, (const ort_node *, const char **))                                             \
  F(351, 23, node_domain, ort_status *, (const ort_node *, const char **))                                           \
  F(352, 23, node_since, ort_status *, (const ort_node *, int *))                                                    \
  F(353, 23, input_count, ort_status *, (const ort_node *, size_t *))                                                \
  F(354, 23, inputs, ort_status *, (const ort_node *, const ort_value_info **, size_t))                              \
  F(355, 23, output_count, ort_status *, (const ort_node *, size_t *))                                               \
  F(356, 23, outputs, ort_status *, (const ort_node *, const ort_value_info **, size_t))                             \
  F(357, 23, implicit_count, ort_status *, (const ort_node *, size_t *))                                             \
  F(358, 23, implicit_inputs, ort_status *, (const ort_node *, const ort_value_info **, size_t))                     \
  F(359, 23, attribute_count, ort_status *, (const ort_node *, size_t *))                                            \
  F(360, 23, attributes, ort_status *, (const ort_node *, const ort_attribute **, size_t))                           \
  F(361, 23, attribute, ort_status *, (const ort_node *, const char *, const ort_attribute **))                      \
  F(363, 23, attribute_type, ort_status *, (const ort_attribute *, int *))                                           \
  F(364, 23, attribute_name, ort_status *, (const ort_attribute *, const char **))

/* Functions of the table that ep_functions() returns. */
#define ORT_EP_FUNCTIONS(F)                                                                                          \
  F(0, 22, create_device, ort_status *,                                                                              \
    (ort_factory *, const ort_device *, const void *metadata, const void *options, ort_ep_device **))                \
  F(2, 23, fuse, ort_status *, (ort_support *, const ort_node *const *, size_t, const ort_fusion_options *))

#define ORT_MEMBER(place, version, name, result, arguments) result(*name) arguments;
struct ort_functions {
  ORT_FUNCTIONS(ORT_MEMBER)
  ORT_EP_FUNCTIONS(ORT_MEMBER)
};
extern struct ort_functions ort;

/* Returns whether a call succeeded, and releases its status. */
int good(ort_status *status);
/* Returns a status whose text begins with `tvmconv: `. */
__attribute__((format(printf, 2, 3))) ort_status *fail(int code, const char *format, ...);

typedef struct ort_base {
  const void *(*functions)(uint32_t version);
  const char *(*version)(void);
} ort_base;

/* Factory of a provider. onnxruntime reads the members of version 23. Members that are NULL are optional. */
struct ort_factory {
  uint32_t version;
  const char *(*name)(const ort_factory *);
  const char *(*vendor)(const ort_factory *);
  ort_status *(*supported_devices)(ort_factory *, const ort_device *const *, size_t, ort_ep_device **, size_t, size_t *);
  ort_status *(*create)(ort_factory *, const ort_device *const *, const void *const *metadata, size_t, const ort_options *,
                        const ort_logger *, ort_ep **);
  void (*release)(ort_factory *, ort_ep *);
  uint32_t (*vendor_id)(const ort_factory *);
  const char *(*own_version)(const ort_factory *);
  void *validate_compiled;
  ort_status *(*create_allocator)(ort_factory *, const void *memory, const void *options, void **);
  void (*release_allocator)(ort_factory *, void *);
  ort_status *(*create_data_transfer)(ort_factory *, void **);
  bool (*is_stream_aware)(const ort_factory *);
  void *create_stream;
};

struct ort_ep {
  uint32_t version;
  const char *(*name)(const ort_ep *);
  ort_status *(*capability)(ort_ep *, const ort_graph *, ort_support *);
  ort_status *(*compile)(ort_ep *, const ort_graph **, const ort_node **, size_t, ort_compute **, ort_node **);
  void (*release_computes)(ort_ep *, ort_compute **, size_t);
  void *preferred_layout, *should_convert, *set_options, *run_start, *run_end, *create_allocator, *create_stream, *compiled_info;
};

struct ort_compute {
  uint32_t version;
  ort_status *(*create_state)(ort_compute *, void *context, void **state);
  ort_status *(*run)(ort_compute *, void *state, ort_context *);
  void (*release_state)(ort_compute *, void *state);
};

#endif
