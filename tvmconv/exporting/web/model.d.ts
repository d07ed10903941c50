export type TensorArray =
  | Float64Array | Float32Array | Uint16Array | BigInt64Array | Int32Array | Int16Array | Int8Array | BigUint64Array | Uint32Array | Uint8Array;

/** An input or output; arrays of float16 and bfloat16 hold their bits. */
export interface Tensor {
  name: string;
  shape: number[];
  dtype: string;
}

export interface Picture {
  data: ArrayLike<number>;
  width: number;
  height: number;
}

export interface Normalization {
  mean?: [number, number, number];
  std?: [number, number, number];
}

export interface ImageSize {
  width: number;
  height: number;
  channelsLast: boolean;
}

export interface Network {
  readonly inputs: Tensor[];
  readonly outputs: Tensor[];
  readonly target: string;
  readonly imageSize: ImageSize | undefined;
  run(inputs: TensorArray | Record<string, TensorArray>): Record<string, TensorArray>;
  runImage(picture: Picture, options?: Normalization): Record<string, TensorArray>;
  times(): { name: string; seconds: number }[];
  readonly threads: number;
  close(): void;
}

export interface Options {
  threads?: number;
}

/** Returns an array of zeros for an input. */
export function arrayOf(tensor: Tensor): TensorArray;

/** Loads the network whose files are in a folder, by default this script's. */
export function load(url?: string | URL, options?: Options): Promise<Network>;
