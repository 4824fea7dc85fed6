/** The same with BullMQ. */
const { JOBS, CONCURRENCY, REDIS_PORT, QUEUE, BULLMQ } = process.env;
const { Worker } = (await import(BULLMQ)).default;
let began;
let left = Number(JOBS);
const connection = { host: "127.0.0.1", port: Number(REDIS_PORT), maxRetriesPerRequest: null };
await new Promise((resolve, reject) => {
  const worker = new Worker(QUEUE, async () => {
    began ??= performance.now();
  }, { connection, concurrency: Number(CONCURRENCY) });
  // Emitted when the outcome is recorded.
  worker.on("completed", () => {
    if (--left === 0) resolve(worker);
  });
  worker.on("error", reject);
}).then(async (worker) => {
  console.log(Number(JOBS) / ((performance.now() - began) / 1000));
  await worker.close();
});
