/* The trailer of a network's file, with the place of its weights (tvmconv/runtime/networks/file.py), for host.h of each system.
 *
 * A system defines `File` and `read_at`, which returns whether it read all bytes. */
#pragma once

#define IDENTITY_BYTES 32u
static const char MAGIC[16] = "tvmconv network";

typedef struct { /* the last bytes of the file */
  uint64_t weights, weight_bytes, description, description_bytes;
  char identity[IDENTITY_BYTES];
  char magic[16];
} End;

static int read_at(File file, uint64_t place, void* to, size_t bytes);

/* Reads the trailer that ends at a place; returns whether there is one. */
static int read_end(File file, uint64_t place, End* end) {
  return place > sizeof *end && read_at(file, place - sizeof *end, end, sizeof *end) && memcmp(end->magic, MAGIC, sizeof MAGIC) == 0 &&
         end->weights < place && end->weight_bytes <= place - end->weights;
}

/* Finds this network's trailer in a file of `bytes` bytes, which may hold several networks; returns 0, or raises. */
static int find_end(File file, uint64_t bytes, End* end) {
  int there = read_end(file, bytes, end);
  const int whole = there;
  for (; there; there = read_end(file, end->weights, end)) /* the preceding network's */
    if (memcmp(end->identity, tvmconv_plan.identity, IDENTITY_BYTES) == 0) return 0;
  return failed("RuntimeError", whole ? "the network's file was replaced by another since it was loaded"
                                      : "the network's file is cut off: its weights are missing");
}
