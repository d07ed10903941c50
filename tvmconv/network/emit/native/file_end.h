/* The end of a network's file, which says where its weights are (tvmconv/runtime/networks/file.py), for host.h of each system.
 *
 * A system has a `File` of its own, and `read_at`, which returns whether it read so many bytes from a place on. */
#pragma once

#define IDENTITY_BYTES 32u
static const char MAGIC[16] = "tvmconv network";

typedef struct { /* the last bytes of the file */
  uint64_t weights, weight_bytes, description, description_bytes;
  char identity[IDENTITY_BYTES];
  char magic[16];
} End;

static int read_at(File file, uint64_t place, void* to, size_t bytes);

/* Reads an end that stands before a place; returns whether there is one. */
static int read_end(File file, uint64_t place, End* end) {
  return place > sizeof *end && read_at(file, place - sizeof *end, end, sizeof *end) && memcmp(end->magic, MAGIC, sizeof MAGIC) == 0 &&
         end->weights < place && end->weight_bytes <= place - end->weights;
}

/* Finds this network's end, of a file of some bytes that may have several networks; returns 0, or raises. */
static int find_end(File file, uint64_t bytes, End* end) {
  int there = read_end(file, bytes, end);
  const int whole = there;
  for (; there; there = read_end(file, end->weights, end)) /* of the network before */
    if (memcmp(end->identity, tvmconv_plan.identity, IDENTITY_BYTES) == 0) return 0;
  return failed("RuntimeError", whole ? "the network's file was replaced by another since it was loaded"
                                      : "the network's file is cut off: its weights are missing");
}
