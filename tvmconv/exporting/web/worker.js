/* Runs the network in a worker, which keeps the page responsive:
 *
 *   import { loadInWorker } from "./worker.js";
 *   const network = await loadInWorker();
 *   const { output } = await network.run(new Float32Array(3 * 224 * 224));
 */
import { load } from "./model.js";

/** Loads the network in a worker; its methods return promises. `options` are those of load. */
export async function loadInWorker(url = new URL("./", import.meta.url), options = {}) {
  if (globalThis.Worker === undefined) throw new Error("there are no workers of the web here: take load of model.js");
  const worker = new Worker(import.meta.url, { type: "module", name: "tvmconv" });
  const calls = new Map();
  let last = 0, ended; /* the error of later calls */
  worker.onmessage = ({ data: { number, value, error } }) => {
    const { resolve, reject } = calls.get(number);
    calls.delete(number);
    if (error === undefined) resolve(value);
    else reject(Object.assign(new Error(error.message), { name: error.name }));
  };
  function end(why) {
    ended ??= why;
    worker.terminate();
    for (const { reject } of calls.values()) reject(ended);
    calls.clear();
  }
  worker.onerror = ({ message }) => end(new Error(`the worker failed: ${message ?? "worker.js cannot be read"}`));
  const call = (method, ...given) =>
    new Promise((resolve, reject) => {
      if (ended) throw ended;
      calls.set(++last, { resolve, reject });
      worker.postMessage({ number: last, method, given });
    });
  const facts = await call("load", String(new URL(url, import.meta.url)), options).catch((error) => {
    end(error);
    throw error;
  });
  return {
    ...facts,
    run: (inputs) => call("run", inputs),
    runImage: ({ data, width, height }, options) => call("runImage", { data, width, height }, options),
    times: () => call("times"),
    close: async () => {
      if (!ended) await call("close").finally(() => end(new Error("the network is closed: load it again")));
    },
  };
}

if (globalThis.WorkerGlobalScope !== undefined && globalThis.name === "tvmconv") {
  let network;
  globalThis.onmessage = async ({ data: { number, method, given } }) => {
    try {
      if (method === "load") {
        network = await load(...given);
        const { inputs, outputs, target, imageSize, threads } = network;
        globalThis.postMessage({ number, value: { inputs, outputs, target, imageSize, threads } });
      } else globalThis.postMessage({ number, value: network[method](...given) });
    } catch ({ name, message }) {
      globalThis.postMessage({ number, error: { name, message } });
    }
  };
}
