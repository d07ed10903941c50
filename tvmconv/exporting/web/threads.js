/* A thread of a network (model.js): a worker with its own instance of the module, on the shared memory. */
const inNode = globalThis.process?.versions?.node !== undefined;
const port = inNode ? (await import(/* webpackIgnore: true */ "node:worker_threads")).parentPort : globalThis;

async function work({ module, memory, own }) {
  const { exports } = await WebAssembly.instantiate(module, { env: { memory }, tvmconv: { now: () => performance.now() / 1e3 } });
  port.postMessage("ready");
  try {
    exports.tvmconv_work(own);
  } catch {
    exports.tvmconv_trapped();
  }
}

if (inNode) port.once("message", work);
else globalThis.onmessage = ({ data }) => work(data);
