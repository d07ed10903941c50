/* Writes what the network named net computes of the numbers on standard input to standard output. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "net.h"

static void *block(size_t bytes) {
  char *allocated = malloc(bytes + net_ALIGNMENT);
  if (allocated == NULL) exit(2);
  return allocated + (net_ALIGNMENT - (uintptr_t)allocated % net_ALIGNMENT);
}

int main(void) {
  const void *inputs[net_INPUTS];
  void *outputs[net_OUTPUTS];
  net_network *network;
  if (net_open(&network) != net_OK) return 1;
  for (int i = 0; i < net_INPUTS; ++i) {
    void *numbers = block(net_inputs[i].bytes);
    if (fread(numbers, 1, net_inputs[i].bytes, stdin) != net_inputs[i].bytes) return 2;
    inputs[i] = numbers;
  }
  for (int i = 0; i < net_OUTPUTS; ++i) outputs[i] = block(net_outputs[i].bytes);
  if (net_run(network, inputs, outputs) != net_OK) return 3;
  for (int i = 0; i < net_OUTPUTS; ++i) fwrite(outputs[i], 1, net_outputs[i].bytes, stdout);
  net_close(network);
  return 0;
}
