// Serves dist/ and passes everything else on to a collector, for work on the pages:
//     node dev.mjs [PORT [COLLECTOR]], such as node dev.mjs 9480 http://127.0.0.1:9470
import { createServer, request } from "node:http";
import { readFile } from "node:fs/promises";
import { extname } from "node:path";

const [port = "9480", collector = "http://127.0.0.1:9470"] = process.argv.slice(2);
const kinds = {
  ".html": "text/html; charset=utf-8",
  ".js": "text/javascript",
  ".css": "text/css",
  ".svg": "image/svg+xml",
};

async function file(path, answer) {
  const name = extname(path) ? path : "/index.html";
  try {
    const body = await readFile(`dist${name}`);
    answer.writeHead(200, {
      "Content-Type": kinds[extname(name)] ?? "application/octet-stream",
      "Cache-Control": "no-store",
    });
    answer.end(body);
  } catch {
    answer.writeHead(404).end("not found\n");
  }
}

const server = createServer((asked, answer) => {
  const { pathname } = new URL(asked.url, "http://localhost");
  if (!/^\/(api|metrics|healthz|readyz|write)/.test(pathname))
    return void file(pathname.replaceAll("..", ""), answer);
  const passed = request(collector + asked.url, { method: asked.method, headers: asked.headers }, (found) => {
    answer.writeHead(found.statusCode, found.headers);
    found.pipe(answer);
  });
  passed.on("error", () => answer.destroy());
  answer.on("close", () => passed.destroy());
  asked.pipe(passed);
});
server.listen(Number(port), "127.0.0.1", () => console.log(`http://127.0.0.1:${server.address().port}`));
