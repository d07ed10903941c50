/* Runs a network compiled by tvmconv to WebAssembly, in browsers, workers and Node.
 *
 *   import { load } from "./model.js";
 *   const network = await load();
 *   const { output } = network.run(new Float32Array(3 * 224 * 224));
 */
const DESCRIPTION = "tvmconv.description";
const ARRAYS = {
  float64: Float64Array, float32: Float32Array, float16: Uint16Array, bfloat16: Uint16Array,
  int64: BigInt64Array, int32: Int32Array, int16: Int16Array, int8: Int8Array,
  uint64: BigUint64Array, uint32: Uint32Array, uint16: Uint16Array, uint8: Uint8Array, bool: Uint8Array,
};
const MODULES = /* MODULES */ [];
/* Modules that validate only in engines with SIMD and with relaxed SIMD. */
const PROBES = {
  simd128: [0, 97, 115, 109, 1, 0, 0, 0, 1, 5, 1, 96, 0, 1, 123, 3, 2, 1, 0, 10, 10, 1, 8, 0, 65, 0, 253, 15, 253, 98, 11],
  "relaxed-simd": [
    0, 97, 115, 109, 1, 0, 0, 0, 1, 5, 1, 96, 0, 1, 123, 3, 2, 1, 0, 10, 15, 1, 13, 0, 65, 1, 253, 15, 65, 2, 253, 15, 253, 128, 2, 11,
  ],
};
const has = (feature) => WebAssembly.validate(new Uint8Array(PROBES[feature]));

/* Bytes of a thread's stack; pages of 64 KB: the initial ones of a module, and the most it may declare. */
const STACK = 2097152, FIRST_PAGES = 256, MOST_PAGES = 65535;
/* Milliseconds after which the weights are expected within 0.2 s if a tenth of them has arrived. */
const WARM_AFTER = 20;
const inNode = globalThis.process?.versions?.node !== undefined;

/** Loads the network whose files are in a folder, by default this script's, with a thread for each processor or `threads` of them; a page
 * that is not cross-origin isolated has one. */
export async function load(url = new URL("./", import.meta.url), { threads = globalThis.navigator?.hardwareConcurrency ?? 1 } = {}) {
  if (!Number.isInteger(threads) || threads < 1) throw new RangeError(`threads is ${threads}; allowed: a whole number from 1 on`);
  const folder = new URL(url, import.meta.url);
  const shares = threads > 1 && (globalThis.crossOriginIsolated || inNode);
  const taken = MODULES.find(({ features, threads }) => features.every(has) && threads === shares);
  if (!taken) {
    const needed = MODULES.at(-1).features.join(" and ");
    throw new Error(
      `this engine has no ${needed} of WebAssembly, which the network was compiled for; Chrome 91, Firefox 89, Safari 16.4, Node 16.4 and later have simd128`,
    );
  }
  const weights = open(new URL("model.weights", folder));
  weights.catch(() => {}); /* awaited below, unless the module fails first */
  const module = await compile(await open(new URL(taken.file, folder)));
  const [content] = WebAssembly.Module.customSections(module, DESCRIPTION);
  if (!content) throw new Error(`${taken.file} is no module of a network`);
  const description = JSON.parse(new TextDecoder().decode(content));
  const network = await make(module, description, shares);
  const reading = weights.then((response) => network.read(response));
  const parts = await Promise.allSettled([reading, network.start(shares ? threads - 1 : 0, module), warm(module, description, shares, network, reading)]);
  const failed = parts.find(({ status }) => status === "rejected");
  if (!failed) return network;
  network.close(); /* after all its threads have started */
  throw failed.reason;
}

/* Instantiates a network, without weights and threads. */
async function make(module, description, shares) {
  const memory = shares ? sharedMemory() : undefined;
  const { exports } = await WebAssembly.instantiate(module, { env: { memory }, tvmconv: { now: () => performance.now() / 1e3 } });
  exports._initialize();
  return new Network(exports, memory ?? exports.memory, description);
}

/* Calls a temporary network once on zeros while the weights arrive, since engines optimize code after it has run; not if the weights will be
 * there soon. */
async function warm(module, description, shares, network, reading) {
  const waited = new Promise((resolve) => setTimeout(resolve, WARM_AFTER, true));
  if (!(await Promise.race([waited, reading.catch(() => false)])) || network.arrived > description.weight_bytes / 10) return;
  const other = await make(module, description, shares).catch(() => undefined); /* memory may not suffice for two */
  try {
    other?.open();
    other?.run(Object.fromEntries(description.inputs.map((each) => [each.name, arrayOf(each)])));
  } catch {
    /* a trap on zeros, such as an integer division by 0 */
  }
}

/* Engines may reserve addresses for the maximum, so a smaller one is tried if that fails. */
function sharedMemory(maximum = MOST_PAGES) {
  try {
    return new WebAssembly.Memory({ initial: FIRST_PAGES, maximum, shared: true });
  } catch (error) {
    if (maximum <= 2 * FIRST_PAGES) throw error;
    return sharedMemory(maximum >> 1);
  }
}

async function openWorker() {
  const url = new URL("threads.js", import.meta.url);
  if (!inNode) return new Worker(url, { type: "module" });
  const { Worker: NodeWorker } = await import(/* webpackIgnore: true */ "node:worker_threads");
  const worker = new NodeWorker(url, { execArgv: [] }); /* drop flags such as --eval */
  return Object.assign(worker, { addEventListener: (kind, listen) => worker.on(kind, (data) => listen(kind === "message" ? { data } : data)) });
}

async function open(url) {
  if (url.protocol === "file:") {
    const { readFile } = await import(/* webpackIgnore: true */ "node:fs/promises");
    return new Response(await readFile(url));
  }
  const response = await fetch(url);
  if (!response.ok) throw new Error(`${url} cannot be read: ${response.status} ${response.statusText}`);
  return response;
}

async function compile(response) {
  const type = response.headers.get("Content-Type") ?? "";
  return type.startsWith("application/wasm") ? WebAssembly.compileStreaming(response) : WebAssembly.compile(await response.arrayBuffer());
}

const describe = ({ name, shape, dtype }) => `${name} (${shape.join("x") || "a number"} ${dtype})`;
const count = ({ shape }) => shape.reduce((product, extent) => product * extent, 1);

/** Returns an array of zeros for an input. */
export const arrayOf = (tensor) => new ARRAYS[tensor.dtype](count(tensor));

export class Network {
  #exports;
  #memory;
  #workers = [];
  #places = [];
  #arguments;
  #seconds;
  #steps;
  arrived = 0; /* bytes of weights */

  constructor(exports, memory, description) {
    this.#exports = exports;
    this.#memory = memory;
    this.inputs = description.inputs;
    this.outputs = description.outputs;
    this.target = description.target;
    this.#steps = description.steps;
    this.weightBytes = description.weight_bytes;
  }

  /* Starts `count` workers, which share the network's loops with the calling thread. */
  async start(count, module) {
    const starts = Array.from({ length: count }, async () => {
      /* A thread's stack grows down from its thread-local variables. */
      const own = this.#place(STACK + this.#exports.tvmconv_thread_bytes(), "a thread") + STACK;
      const worker = await openWorker();
      this.#workers.push(worker);
      await new Promise((resolve, reject) => {
        worker.addEventListener("message", resolve);
        worker.addEventListener("error", ({ message }) => reject(new Error(`a thread failed: ${message ?? "threads.js cannot be read"}`)));
        worker.postMessage({ module, memory: this.#memory, own });
      });
      worker.unref?.(); /* waiting threads do not keep Node alive */
    });
    await Promise.all(starts);
  }

  /** Number of computing threads, the caller included. */
  get threads() {
    return this.#workers.length + 1;
  }

  /** Ends the threads; later calls fail. */
  close() {
    for (const worker of this.#workers) worker.terminate();
    this.#exports = undefined;
  }

  /* Copies the weights as they arrive, then opens the network. */
  async read(response) {
    const place = this.#place(this.weightBytes, "the weights");
    const reader = response.body?.getReader();
    for (let part = await reader?.read(); part && !part.done; part = await reader.read()) {
      if (this.arrived + part.value.length <= this.weightBytes) this.#bytes().set(part.value, place + this.arrived);
      this.arrived += part.value.length;
    }
    if (this.arrived !== this.weightBytes)
      throw new Error(`model.weights has ${this.arrived} bytes, and the network ${this.weightBytes}: the file is cut off, or another model's`);
    this.open(place);
  }

  /* Opens the network with its weights at an address, by default zeros. */
  open(weights = this.#place(this.weightBytes, "the weights")) {
    this.#exports.tvmconv_set_weights(weights);
    const ends = [...this.inputs, ...this.outputs];
    this.#places = ends.map((each) => this.#place(count(each) * ARRAYS[each.dtype].BYTES_PER_ELEMENT, each.name));
    this.#seconds = this.#place(8 * this.#steps.length, "times");
    this.#arguments = this.#place(16 * (ends.length + 3), "arguments");
    const result = this.#arguments + 16 * (ends.length + 2);
    this.#check(this.#exports.__tvm_ffi_tvmconv_network_open(0, 0, 0, result));
    const handle = new DataView(this.#memory.buffer).getBigInt64(result + 8, true);
    [handle, 0n, ...this.#places.map(BigInt)].forEach((value, index) => this.#argument(index, value));
  }

  /** Returns the outputs by name; inputs are an object of typed arrays by name, or the only input's array. */
  run(given) {
    const arrays = this.#inputs(given);
    this.inputs.forEach((each, index) => this.#view(index, each).set(arrays[index]));
    this.#call();
    return Object.fromEntries(this.outputs.map((each, index) => [each.name, this.#view(this.inputs.length + index, each).slice()]));
  }

  /** Returns the outputs for a picture of the network's size, such as an ImageData; colours are (colour / 255 - mean) / std. */
  runImage({ data, width, height }, { mean = [0.485, 0.456, 0.406], std = [0.229, 0.224, 0.225] } = {}) {
    const size = this.imageSize;
    if (!size) throw new TypeError(`the network takes ${this.inputs.map(describe).join(", ")}: no picture`);
    if (width !== size.width || height !== size.height)
      throw new RangeError(`the picture has ${width}x${height} pixels; the network takes ${size.width}x${size.height}`);
    const pixels = width * height, array = new Float32Array(3 * pixels);
    for (let pixel = 0; pixel < pixels; pixel++)
      for (let colour = 0; colour < 3; colour++)
        array[size.channelsLast ? 3 * pixel + colour : colour * pixels + pixel] = (data[4 * pixel + colour] / 255 - mean[colour]) / std[colour];
    return this.run(array);
  }

  /** Size of pictures for runImage; undefined: the input is no picture. */
  get imageSize() {
    const [{ shape, dtype } = { shape: [] }] = this.inputs;
    if (this.inputs.length !== 1 || shape.length !== 4 || shape[0] !== 1 || dtype !== "float32") return undefined;
    if (shape[1] === 3) return { width: shape[3], height: shape[2], channelsLast: false };
    return shape[3] === 3 ? { width: shape[2], height: shape[1], channelsLast: true } : undefined;
  }

  /** Returns the seconds of each step of a call with the last inputs. */
  times() {
    this.#argument(1, BigInt(this.#seconds));
    try {
      this.#call();
    } finally {
      this.#argument(1, 0n);
    }
    const seconds = new Float64Array(this.#memory.buffer, this.#seconds, this.#steps.length);
    return this.#steps.map(({ function: name }, index) => ({ name, seconds: seconds[index] })).filter(({ seconds }) => seconds >= 0);
  }

  #inputs(given) {
    const wanted = this.inputs.map(describe).join(", ");
    const byName = ArrayBuffer.isView(given) && this.inputs.length === 1 ? { [this.inputs[0].name]: given } : given;
    if (byName === null || typeof byName !== "object" || ArrayBuffer.isView(byName)) throw new TypeError(`give typed arrays by name; the network takes ${wanted}`);
    const strange = Object.keys(byName).find((name) => !this.inputs.some((each) => each.name === name));
    if (strange !== undefined) throw new TypeError(`${strange} was given; the network takes ${wanted}`);
    return this.inputs.map((each) => {
      const array = byName[each.name], type = ARRAYS[each.dtype];
      if (!(array instanceof type)) throw new TypeError(`${each.name} is no ${type.name}; the network takes ${wanted}`);
      if (array.length !== count(each)) throw new RangeError(`${each.name} has ${array.length} elements; the network takes ${wanted}`);
      return array;
    });
  }

  #call() {
    if (!this.#exports) throw new Error("the network is closed: load it again");
    const count = this.#places.length + 2;
    let status;
    try {
      status = this.#exports.__tvm_ffi_tvmconv_network(0, this.#arguments, count, this.#arguments + 16 * count);
    } catch (error) {
      this.close(); /* a trap leaves threads within a loop */
      throw error;
    }
    this.#check(status);
  }

  #check(status) {
    if (status === 0) return;
    const bytes = this.#bytes(), from = this.#exports.tvmconv_raised() >>> 0;
    throw new Error(new TextDecoder().decode(bytes.slice(from, bytes.indexOf(0, from))));
  }

  #place(size, what) {
    const place = this.#exports.tvmconv_place(size) >>> 0;
    if (place === 0) throw new RangeError(`there is no memory for ${what}: ${size} bytes`);
    return place;
  }

  #argument(index, value) {
    const view = new DataView(this.#memory.buffer);
    view.setInt32(this.#arguments + 16 * index, 1, true); /* an integer */
    view.setBigInt64(this.#arguments + 16 * index + 8, value, true);
  }

  #view(index, each) {
    return new ARRAYS[each.dtype](this.#memory.buffer, this.#places[index], count(each));
  }

  #bytes() {
    return new Uint8Array(this.#memory.buffer);
  }
}
