/* The order of numbers along an axis, linked into networks. */
#include <stdint.h>
#include <stdlib.h>
#include <tvm/ffi/c_api.h>

typedef struct {
  int64_t key, index;
} Item;

/* Items with equal keys keep their order, so no two items compare equal. */
static int ascending(const void* left, const void* right) {
  const Item *a = left, *b = right;
  if (a->key != b->key) return a->key < b->key ? -1 : 1;
  return a->index < b->index ? -1 : 1;
}

static int descending(const void* left, const void* right) {
  const Item *a = left, *b = right;
  if (a->key != b->key) return a->key > b->key ? -1 : 1;
  return a->index < b->index ? -1 : 1;
}

/* keys[outer][size][inner] -> indices[outer][count][inner], of 4 or 8 bytes each, of the first `count` keys in order. */
int tvmconv_argsort(const int64_t* keys, void* indices, int64_t outer, int64_t size, int64_t inner, int64_t count,
                    int64_t descends, int64_t index_bytes) {
  if (count > size) {
    TVMFFIErrorSetRaisedFromCStr("ValueError", "topk takes more elements than the axis has in this call; give a larger input");
    return -1;
  }
  Item* items = malloc(sizeof(Item) * (size_t)(size ? size : 1));
  if (items == NULL) {
    TVMFFIErrorSetRaisedFromCStr("MemoryError", "there is no memory for a sort");
    return -1;
  }
  for (int64_t row = 0; row < outer * inner; ++row) {
    int64_t from = row / inner * size * inner + row % inner, to = row / inner * count * inner + row % inner;
    for (int64_t i = 0; i < size; ++i) items[i] = (Item){keys[from + i * inner], i};
    qsort(items, (size_t)size, sizeof *items, descends ? descending : ascending);
    for (int64_t i = 0; i < count; ++i, to += inner) {
      if (index_bytes == 8)
        ((int64_t*)indices)[to] = items[i].index;
      else
        ((int32_t*)indices)[to] = (int32_t)items[i].index;
    }
  }
  free(items);
  return 0;
}
