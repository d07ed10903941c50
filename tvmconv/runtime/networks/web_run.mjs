/* Calls a network for browsers in Node:  node web_run.mjs MODEL.JS FOLDER THREADS; reads FOLDER/in, writes FOLDER/out. */
import { readFileSync, writeFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const [, , script, work, threads] = process.argv;
const { arrayOf, load } = await import(pathToFileURL(script));
try {
  const network = await load(undefined, { threads: Number(threads) });
  const content = readFileSync(`${work}/in`);
  const given = {};
  let at = 0;
  for (const each of network.inputs) {
    const array = arrayOf(each);
    const bytes = new Uint8Array(array.buffer);
    bytes.set(content.subarray(at, at + bytes.length));
    at += bytes.length;
    given[each.name] = array;
  }
  const outputs = network.run(given);
  writeFileSync(`${work}/out`, Buffer.concat(network.outputs.map(({ name }) => Buffer.from(outputs[name].buffer))));
} catch (error) {
  console.error(error instanceof Error ? error.message : error);
  process.exit(1);
}
