/** One worker process of noop.mjs: ends when all jobs are recorded, and prints jobs per second. */
import { Client, Worker } from "../dist/index.js";

const { JOBS, CONCURRENCY, PREFETCH, QUEUE } = process.env;
const silent = () => undefined;
const client = new Client();
const worker = new Worker(client, {
  concurrency: Number(CONCURRENCY), prefetch: Number(PREFETCH), queues: [QUEUE], declare: false,
  logger: { debug: silent, info: silent, warn: console.error, error: console.error },
});
let began;
let left = Number(JOBS);
const last = new Promise((resolve) => {
  worker.handle("noop", async () => {
    began ??= performance.now();
    if (--left === 0) resolve();
  });
});
await worker.start();
await last;
// The end is when the last outcome is recorded, not when its handler returned.
while ((await client.queues.get(QUEUE)).counts.succeeded < Number(JOBS));
console.log(Number(JOBS) / ((performance.now() - began) / 1000));
await worker.stop();
