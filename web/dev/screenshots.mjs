// Takes screenshots of every page of a running API server, in both themes and two widths: node
// dev/screenshots.mjs URL TOKEN FOLDER [JOB [STUDY]]. Fails if the browser reports an error, such
// as an exception or a violation of the content security policy.
import { mkdirSync, mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { chromium } from "playwright-core";

const [url, token, folder, job, study] = process.argv.slice(2);
if (folder === undefined) throw new Error("usage: screenshots.mjs URL TOKEN FOLDER [JOB [STUDY]]");
mkdirSync(folder, { recursive: true });

const VIEWS = [
  { name: "light", width: 1280, height: 800, colorScheme: "light" },
  { name: "dark", width: 1280, height: 800, colorScheme: "dark" },
  { name: "phone", width: 390, height: 844, colorScheme: "light" },
];
const jobPages =
  job === undefined
    ? []
    : [
        "",
        "?tab=metrics",
        "?tab=tasks",
        "?tab=logs",
        "?tab=events",
        "?tab=checkpoints",
        "?tab=artifacts",
        "?tab=spec",
      ].map((tab) => `/jobs/${job}${tab}`);
const PAGES = [
  "/jobs",
  ...jobPages,
  "/studies",
  ...(study === undefined ? [] : [`/studies/${study}`]),
  "/nodes",
  "/schedules",
  "/secrets",
  "/submit",
  "/nowhere",
];

const complaints = [];
for (const { name, width, height, colorScheme } of VIEWS) {
  const context = await chromium.launchPersistentContext(mkdtempSync(join(tmpdir(), "muster-web-")), {
    executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
    headless: true,
    viewport: { width, height },
    colorScheme,
    args: [
      "--no-sandbox",
      "--disable-gpu",
      "--disable-quic",
      "--no-first-run",
      "--disable-background-networking",
      "--disable-component-update",
      "--disable-sync",
    ],
  });
  const page = await context.newPage();
  page.on("console", (message) => {
    if (message.type() === "error") complaints.push(`${name}: ${message.text()}`);
  });
  page.on("pageerror", (error) => complaints.push(`${name}: ${error.message}`));
  await page.goto(url);
  await page.locator("#token").waitFor();
  await page.screenshot({ path: join(folder, `${name}-login.png`) });
  await page.goto(`${url}/jobs#token=${token}`);
  await page.reload();
  for (const path of PAGES) {
    await page.goto(url + path);
    await page.locator("h1").first().waitFor();
    await page.waitForTimeout(700);
    const wide = await page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);
    if (wide > 0) complaints.push(`${name} ${path}: ${wide} px too wide`);
    const file = `${name}${path.replace(job ?? "\0", "one").replace(/[/?=]+/g, "-")}.png`;
    await page.screenshot({ path: join(folder, file), fullPage: name === "phone" });
  }
  await context.close();
}
for (const complaint of complaints) console.error(complaint);
process.exitCode = complaints.length === 0 ? 0 : 1;
