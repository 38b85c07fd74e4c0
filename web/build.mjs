// Builds the pages into dist/, which the collector embeds; with --tests, the tests into build/.
import { build } from "esbuild";
import { mkdir, readFile, readdir, rm, writeFile } from "node:fs/promises";
import { basename } from "node:path";

const target = ["es2022"];

async function pages() {
  const { outputFiles } = await build({
    entryPoints: ["src/main.tsx"],
    bundle: true,
    minify: true,
    format: "esm",
    target,
    jsx: "automatic",
    jsxImportSource: "preact",
    outdir: "dist/assets",
    // The name changes with the content, so that browsers may keep a file for ever.
    entryNames: "pages-[hash]",
    legalComments: "eof",
    write: false,
  });
  const made = new Map(outputFiles.map(({ path, contents }) => [`assets/${basename(path)}`, Buffer.from(contents)]));
  const named = (end) => `/${[...made.keys()].find((name) => name.endsWith(end))}`;
  const html = await readFile("src/index.html", "utf8");
  made.set("index.html", Buffer.from(html.replace("STYLE", named(".css")).replace("SCRIPT", named(".js"))));
  made.set("icon.svg", await readFile("src/icon.svg"));
  await put(made);
}

/** Makes dist/ hold exactly these files. What is the same stays as it is, so that cargo does not build again. */
async function put(made) {
  await mkdir("dist/assets", { recursive: true });
  for (const folder of ["", "assets/"]) {
    for (const name of await readdir(`dist/${folder}`)) {
      const path = folder + name;
      if (path !== "assets" && !made.has(path)) await rm(`dist/${path}`, { recursive: true });
    }
  }
  for (const [path, content] of made) {
    const before = await readFile(`dist/${path}`).catch(() => null);
    if (!before?.equals(content)) await writeFile(`dist/${path}`, content);
  }
}

async function tests() {
  for (const folder of ["test", "browser"]) {
    const files = (await readdir(`test/${folder === "test" ? "unit" : folder}`)).filter((name) =>
      name.endsWith(".ts"),
    );
    await rm(`build/${folder}`, { recursive: true, force: true });
    await build({
      entryPoints: files.map((name) => `test/${folder === "test" ? "unit" : folder}/${name}`),
      bundle: true,
      platform: "node",
      format: "esm",
      target: ["node18"],
      external: ["playwright-core"],
      outdir: `build/${folder}`,
      entryNames: "[name]",
    });
  }
}

await (process.argv.includes("--tests") ? tests() : pages());
