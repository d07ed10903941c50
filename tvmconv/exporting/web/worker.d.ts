import type { ImageSize, Normalization, Options, Picture, Tensor, TensorArray } from "./model.js";

export interface WorkerNetwork {
  readonly inputs: Tensor[];
  readonly outputs: Tensor[];
  readonly target: string;
  readonly imageSize: ImageSize | undefined;
  run(inputs: TensorArray | Record<string, TensorArray>): Promise<Record<string, TensorArray>>;
  runImage(picture: Picture, options?: Normalization): Promise<Record<string, TensorArray>>;
  times(): Promise<{ name: string; seconds: number }[]>;
  readonly threads: number;
  close(): Promise<void>;
}

/** Loads the network in a worker. */
export function loadInWorker(url?: string | URL, options?: Options): Promise<WorkerNetwork>;
