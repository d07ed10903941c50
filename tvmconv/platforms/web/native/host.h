/* Weights of a network, a lock, and a clock, for its executor (tvmconv/network/emit/native/executor.c). */

/* Written by the page (model.js) before it opens the network. */
extern unsigned char* tvmconv_weights;

typedef struct {
  const unsigned char* bytes;
} Weights;

static int map_weights(Weights* weights) {
  weights->bytes = tvmconv_weights;
  return 0;
}
static void unmap_weights(Weights* weights) { (void)weights; }

static void lock(void) {}
static void unlock(void) {}

__attribute__((import_module("tvmconv"), import_name("now"))) double now(void);
