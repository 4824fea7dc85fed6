// A small reverse proxy: puts the server below a path, or changes what it answers on the way.

import http from "node:http";

/** `prefix`: what is before the server's own paths. `change`: of every text that is answered. */
export async function proxy(to, { prefix = "", change } = {}) {
  const server = http.createServer((request, answer) => {
    if (!request.url.startsWith(prefix)) return void answer.writeHead(404).end("outside");
    const headers = change ? { ...request.headers, "accept-encoding": "identity" } : request.headers;
    const onward = http.request(to + (request.url.slice(prefix.length) || "/"), { method: request.method, headers }, (reply) => {
      const isJson = /json|event-stream/.test(reply.headers["content-type"] ?? "");
      if (!change || !isJson) {
        answer.writeHead(reply.statusCode, reply.headers);
        return void reply.pipe(answer);
      }
      const { "content-length": _, ...kept } = reply.headers;
      answer.writeHead(reply.statusCode, kept);
      reply.setEncoding("utf8");
      reply.on("data", (part) => answer.write(change(part)));
      reply.on("end", () => answer.end());
    });
    onward.on("error", () => answer.destroy());
    answer.on("close", () => onward.destroy());
    request.pipe(onward);
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  return {
    url: `http://127.0.0.1:${server.address().port}`,
    end: async () => {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}
