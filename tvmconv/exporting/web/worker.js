/* Runs the network in a worker, so that the page stays responsive:
 *
 *   import { loadInWorker } from "./worker.js";
 *   const network = await loadInWorker();
 *   const { output } = await network.run(new Float32Array(3 * 224 * 224));
 */
import { load } from "./model.js";

/** Loads the network in a worker of its own, whose methods return promises; `options` are those of load. */
export async function loadInWorker(url = new URL("./", import.meta.url), options = {}) {
  const worker = new Worker(import.meta.url, { type: "module", name: "tvmconv" });
  const calls = new Map();
  let last = 0;
  worker.onmessage = ({ data: { number, value, error } }) => {
    const { resolve, reject } = calls.get(number);
    calls.delete(number);
    if (error === undefined) resolve(value);
    else reject(Object.assign(new Error(error.message), { name: error.name }));
  };
  worker.onerror = (event) => {
    for (const { reject } of calls.values()) reject(new Error(`the worker failed: ${event.message}`));
    calls.clear();
  };
  const call = (method, ...given) =>
    new Promise((resolve, reject) => {
      calls.set(++last, { resolve, reject });
      worker.postMessage({ number: last, method, given });
    });
  const facts = await call("load", String(new URL(url, import.meta.url)), options);
  return {
    ...facts,
    run: (inputs) => call("run", inputs),
    runImage: ({ data, width, height }, options) => call("runImage", { data, width, height }, options),
    times: () => call("times"),
    close: () => call("close").finally(() => worker.terminate()),
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
