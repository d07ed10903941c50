/* Calls functions of a kernel's module in Node:
 *
 *   node runner.mjs MODULE CALLS
 *
 * CALLS is the text file that runner.c describes. Guard bytes follow each array; a call that changes them fails. */
import { readFileSync, writeFileSync } from "node:fs";

const GUARD = 256;
const [, , library, calls] = process.argv;
const { exports } = new WebAssembly.Instance(new WebAssembly.Module(readFileSync(library)), {});
exports._initialize();
const bytes = () => new Uint8Array(exports.memory.buffer);
const view = () => new DataView(exports.memory.buffer);

function fail(what) {
  console.error(what);
  process.exit(1);
}

function place(size) {
  const address = exports.tvmconv_place(size + GUARD) >>> 0;
  if (address === 0) fail("there is no memory for an array");
  bytes().fill(0xa5, address + size, address + size + GUARD);
  return address;
}

/* Returns the C string at an address. */
function text(address) {
  const memory = bytes();
  return new TextDecoder().decode(memory.subarray(address, memory.indexOf(0, address)));
}

const words = readFileSync(calls, "utf8").split(/\s+/);
let at = 0;
const number = () => Number(words[at++]);
while (words[at]) {
  const name = words[at++], count = number();
  const args = place(16 * (count + 1)), arrays = [];
  bytes().fill(0, args, args + 16 * (count + 1));
  for (let index = 0; index < count; index++) {
    const code = number(), bits = number(), axes = number();
    const extents = Array.from({ length: axes }, number);
    const file = words[at++], content = readFileSync(file);
    const data = place(content.length), shape = place(16 * axes + 16), tensor = place(48);
    bytes().set(content, data);
    const memory = view();
    let step = 1;
    for (let axis = axes - 1; axis >= 0; step *= extents[axis--]) {
      memory.setBigInt64(shape + 8 * axis, BigInt(extents[axis]), true);
      memory.setBigInt64(shape + 8 * (axes + axis), BigInt(step), true);
    }
    /* DLTensor of 32-bit addresses: data, device, axes, type, shape, strides, offset. */
    memory.setUint32(tensor, data, true);
    memory.setInt32(tensor + 4, 1, true);
    memory.setInt32(tensor + 8, 0, true);
    memory.setInt32(tensor + 12, axes, true);
    memory.setUint8(tensor + 16, code);
    memory.setUint8(tensor + 17, bits);
    memory.setUint16(tensor + 18, 1, true);
    memory.setUint32(tensor + 20, shape, true);
    memory.setUint32(tensor + 24, shape + 8 * axes, true);
    memory.setBigUint64(tensor + 32, 0n, true);
    memory.setInt32(args + 16 * index, 7, true); /* kTVMFFIDLTensorPtr */
    memory.setUint32(args + 16 * index + 8, tensor, true);
    arrays.push([file, data, content.length]);
  }
  const call = exports[`__tvm_ffi_${name}`];
  if (!call) fail(`the library has no __tvm_ffi_${name}`);
  try {
    if (call(0, args, count, args + 16 * count) !== 0) fail(`${name} ${text(exports.tvmconv_raised() >>> 0)}`);
  } catch (error) {
    fail(`${name} ${error}`); /* a trap */
  }
  for (const [file, data, size] of arrays)
    if (bytes().subarray(data + size, data + size + GUARD).some((each) => each !== 0xa5)) fail(`${name} wrote beyond ${file}`);
  const [file, data, size] = arrays[count - 1];
  writeFileSync(file, bytes().subarray(data, data + size));
}
