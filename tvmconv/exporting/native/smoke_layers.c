
static int try_layer(const tvmconv_name_layer *layer, const struct answer *answer) {
  const tvmconv_name_kernel *kernel = layer->kernel;
  const tvmconv_name_array *result = &kernel->arrays[kernel->inputs];
  const void *inputs[2] = {NULL, NULL};
  if (answer->error < 0) return 0;
  inputs[0] = draw(&kernel->arrays[0], answer);
  if (layer->inputs > 1) inputs[1] = draw(&kernel->arrays[kernel->inputs - 1], answer); /* the residual is the last input */
  void *output = malloc(result->bytes + 1);
  if (output == NULL) exit(2);
  memset(output, 0xFF, result->bytes);
  int status = layer->run(NULL, inputs, output);
  int bad = failed(layer->node, "layer", status, compare(result, output, answer));
  free((void *)(uintptr_t)inputs[0]);
  free((void *)(uintptr_t)inputs[1]);
  free(output);
  return bad;
}

