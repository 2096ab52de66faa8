// Checks the page of a running job in a real browser.
//
//     node story.mjs WEB CHROMIUM PROFILE SERVER TOKEN JOB
//
// WEB is the folder of the page's packages, PROFILE an empty folder for Chromium. The job trains on
// two workers and one shard and has most of its steps ahead. Prints one line per passed check. At
// the first failure it prints the reason and exits with code 1.
import { createRequire } from "node:module";
import { resolve } from "node:path";

const [web, executablePath, profile, server, token, job] = process.argv.slice(2);
if (job === undefined) throw new Error("usage: story.mjs WEB CHROMIUM PROFILE SERVER TOKEN JOB");
const { chromium } = createRequire(resolve(web, "package.json"))("playwright-core");

/** Time limit of a wait; far above normal times. */
const PATIENCE_MS = 60_000;

const context = await chromium.launchPersistentContext(profile, {
  executablePath,
  headless: true,
  viewport: { width: 1280, height: 900 },
  args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"],
});
context.setDefaultTimeout(PATIENCE_MS);
const page = await context.newPage();
const complaints = [];
const lists = [];
page.on("console", (message) => {
  if (message.type() === "error") complaints.push(`${message.text()} (${message.location().url})`);
});
page.on("pageerror", (error) => complaints.push(error.stack ?? error.message));
page.on("request", (request) => {
  const url = new URL(request.url());
  if (url.pathname === "/api/v1/jobs" && url.searchParams.get("limit") === "50") lists.push(request.url());
});
await page.addInitScript(() => {
  document.addEventListener("securitypolicyviolation", (event) => console.error(`policy ${event.violatedDirective} refused ${event.blockedURI}`));
});

try {
  await signIn();
  await liveList();
  await openByKeyboard();
  await liveCurve();
  await tasks();
  await events();
  await logs();
  await heldSquares();
  await pauseAndResume();
  await fieldError();
  await longCommand();
  await success();
  check(await page.evaluate(() => window.neverReloaded === true), "all of it in one page, never loaded anew");
  check(complaints.length === 0, "the browser complains of nothing");
} catch (error) {
  console.error(error);
  console.error(`at ${page.url()}, which shows:\n${await page.locator("body").innerText({ timeout: 1000 }).catch(String)}`);
  for (const complaint of complaints) console.error(`complaint: ${complaint}`);
  process.exitCode = 1;
} finally {
  await context.close();
}

async function signIn() {
  await page.goto(`${server}/#token=${token}`);
  await page.getByRole("heading", { name: "Jobs", level: 1 }).waitFor();
  check(!page.url().includes(token), "the token is gone from the address");
  await page.getByRole("status").getByText("Live").waitFor();
  await page.evaluate(() => {
    window.neverReloaded = true;
  });
}

async function liveList() {
  const row = page.getByRole("row").filter({ has: page.locator(`a[href="/jobs/${job}"]`) });
  await row.locator(".phase", { hasText: "running" }).waitFor();
  const steps = () => stepsIn(row);
  await until("the list shows the first steps", async () => (await steps()) > 0);
  // After the first sample the page requests the total number of steps once.
  await page.waitForTimeout(1000);
  const asked = lists.length;
  let last = await steps();
  for (let rise = 0; rise < 3; rise += 1) {
    await until("the list's steps rise", async () => (await steps()) > last);
    last = await steps();
  }
  check(lists.length === asked, "the list follows its job without asking again");
  // A time, or the interval of the forecast.
  check(/^\d+(s$|m|s–)/.test(await row.locator('[data-label="Ends in"]').innerText()), "the list says how long it will take");
}

async function openByKeyboard() {
  await page.evaluate(() => document.activeElement?.blur());
  const focused = () => page.evaluate(() => document.activeElement?.getAttribute("href") ?? "");
  let presses = 0;
  while ((await focused()) !== `/jobs/${job}`) {
    presses += 1;
    if (presses > 40) throw new Error("Tab does not reach the first job");
    await page.keyboard.press("Tab");
  }
  const outline = await page.evaluate(() => getComputedStyle(document.activeElement).outlineStyle);
  check(outline !== "none", "what has the focus is seen to have it");
  await page.keyboard.press("Enter");
  await page.waitForURL(`**/jobs/${job}`);
  await page.locator(".job-title .phase", { hasText: "running" }).waitFor();
  say("Tab reaches the job and Enter opens it");
}

async function liveCurve() {
  const canvas = page.locator("figure", { hasText: "Loss" }).locator("canvas").first();
  await canvas.waitFor();
  // Points in the legend's colour of the training loss.
  const drawn = () =>
    canvas.evaluate((element) => {
      const legend = element.closest("figure").querySelector('.chart-line[data-colour="1"]');
      const colour = getComputedStyle(legend).backgroundColor.match(/\d+/g).slice(0, 3).map(Number);
      const { data } = element.getContext("2d").getImageData(0, 0, element.width, element.height);
      let points = 0;
      for (let at = 0; at < data.length; at += 4) {
        if (data[at + 3] > 200 && colour.every((value, part) => Math.abs(value - data[at + part]) < 12)) points += 1;
      }
      return points;
    });
  await until("the loss curve is drawn", async () => (await drawn()) > 100);
  const facts = page.locator(".facts");
  const before = await stepsIn(facts);
  await until("the job's steps rise", async () => (await stepsIn(facts)) > before);
}

async function tasks() {
  await page.getByRole("tab", { name: /^Tasks/ }).click();
  const told = await api(`/jobs/${job}/tasks`);
  check(told.length === 3, "it has three tasks");
  for (const { role, node, gpus } of told) {
    const name = role.kind === "worker" ? `worker-${role.rank}` : `ps-${role.index}`;
    const row = page.getByRole("row").filter({ has: page.getByRole("rowheader", { name, exact: true }) });
    await row.locator('[data-label="State"]', { hasText: "running" }).waitFor();
    check((await row.locator('[data-label="Node"]').innerText()) === node, `${name} is shown on ${node}`);
    check((await row.locator('[data-label="GPUs"]').innerText()) === (gpus.join(", ") || "none"), `${name} is shown with its slots`);
  }
}

async function events() {
  await page.getByRole("tab", { name: "Events" }).click();
  const panel = page.getByRole("tabpanel");
  for (const words of [/Submitted as/, /Placed: 2\s+workers and 1\s+PS shard on node-/, /All tasks are running/]) {
    await panel.getByText(words).first().waitFor();
  }
  await panel.getByLabel(/routine/).check();
  await panel.getByText("worker-1 is running").waitFor();
  await panel.getByText(/^Checkpoint of step/).first().waitFor();
  say("events have texts");
}

async function logs() {
  await page.getByRole("tab", { name: "Logs" }).click();
  const lines = page.getByRole("log").locator(".log-line");
  await lines.first().waitFor();
  const before = await lines.count();
  await until("the log grows", async () => (await lines.count()) > before);
  const below = await page.getByRole("log").evaluate((box) => box.scrollHeight - box.scrollTop - box.clientHeight);
  check(below < 24, "the log is followed to its end");
}

async function heldSquares() {
  await page.getByRole("link", { name: "Nodes", exact: true }).click();
  const squares = page.locator(`a.slot[href="/jobs/${job}"]`);
  await squares.first().waitFor();
  const nodes = await api("/nodes");
  const held = nodes.flatMap((node) => node.gpus).filter((gpu) => gpu.job?.id === job).length;
  check((await squares.count()) === held && held >= 2, `the job's ${held} slots are squares of its own`);
  check((await page.locator(".slot").count()) === nodes.flatMap((node) => node.gpus).length, "every slot has its square");
  await squares.first().click();
  await page.waitForURL(`**/jobs/${job}`);
}

async function pauseAndResume() {
  const phase = page.locator(".job-title .phase");
  await page.getByRole("button", { name: "Pause" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Pause" }).click();
  await phase.getByText("paused", { exact: true }).waitFor();
  const view = await api(`/jobs/${job}`);
  check(view.phase === "paused" && view.resume_step > 0, "Pause pauses it, with a checkpoint");
  await page.getByRole("link", { name: "Nodes", exact: true }).click();
  await page.locator(".slot").first().waitFor();
  await until("a paused job holds no square", async () => (await page.locator(`a.slot[href="/jobs/${job}"]`).count()) === 0);
  await page.goBack();
  await page.getByRole("button", { name: "Resume" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Resume" }).click();
  await phase.getByText("running", { exact: true }).waitFor();
  await until("the job goes on behind its checkpoint", async () => (await stepsIn(page.locator(".facts"))) > view.resume_step);
  await page.getByRole("tab", { name: "Events" }).click();
  await page.getByRole("tabpanel").getByText(`Training continues from step ${view.resume_step}`).waitFor();
}

async function fieldError() {
  await page.getByRole("link", { name: "Submit", exact: true }).click();
  const editor = page.getByLabel("Job document, YAML or JSON");
  const document = await editor.inputValue();
  await editor.fill(document.replace(/batch: \d+/, "batch: 0"));
  const before = complaints.length;
  await page.getByRole("button", { name: "Submit", exact: true }).click();
  const mistake = page.locator(".mistakes li").filter({ hasText: "engine.batch" });
  await mistake.waitFor();
  check(/is 0; expected: \S+/.test(await mistake.innerText()), "a wrong field is named, with what is expected");
  await mistake.getByRole("button", { name: /^Line \d+$/ }).click();
  check(await editor.evaluate((area) => area.value.slice(area.selectionStart, area.selectionEnd).includes("batch: 0")), "its line is found");
  // The browser logs the refused request, which this story expects.
  await until("the refusal is reported", () => complaints.length > before);
  const [refusal, ...others] = complaints.splice(before);
  check(refusal.includes("422") && others.length === 0, "and nothing else");
  await page.goBack();
}

/** Checks that a command of 2,000 characters without a blank does not widen any page. */
async function longCommand() {
  const argv = ["sh", "-c", `exit 0 # ${"x".repeat(2000)}`];
  const made = await fetch(`${server}/api/v1/jobs`, {
    method: "POST",
    headers: { authorization: `Bearer ${token}`, "content-type": "application/json" },
    body: JSON.stringify({ version: "muster/v1", name: "long-command", command: { argv }, scale: { workers: { min: 1, max: 1 } } }),
  });
  check(made.status === 201, "a long command is submitted");
  const { id } = await made.json();
  const long = await context.newPage();
  for (const width of [1440, 390]) {
    await long.setViewportSize({ width, height: 900 });
    for (const path of [`/jobs/${id}`, `/jobs/${id}?tab=spec`, "/jobs"]) {
      await long.goto(`${server}${path}`);
      await long.locator("h1").first().waitFor();
      const fits = () => long.evaluate(() => document.documentElement.scrollWidth <= window.innerWidth);
      await until(`${path.replace(id, "one")} fits into ${width} px`, fits);
    }
  }
  await long.goto(`${server}/jobs/${id}`);
  await long.getByRole("button", { name: "more" }).click();
  check((await long.locator(".command-text").innerText()).includes("x".repeat(2000)), "all of the command is shown");
  await long.close();
}

async function success() {
  await page.locator(".job-title .phase", { hasText: "succeeded" }).waitFor({ timeout: 3 * PATIENCE_MS });
  const fact = page.locator(".fact", { has: page.locator("dt", { hasText: "Test accuracy" }) }).locator("dd");
  const view = await api(`/jobs/${job}`);
  const percent = (view.progress.test_accuracy * 100).toFixed(2);
  await until(`the page shows the test accuracy, ${percent} %`, async () => (await fact.innerText()).startsWith(percent));
  check((await stepsIn(page.locator(".facts"))) === view.progress.total_steps, "the page shows the last step");
}

/** Returns the steps done according to the progress bar; -1 before the first. */
async function stepsIn(place) {
  const text = await place.locator(".progress-text").allInnerTexts();
  return text.length === 0 ? -1 : Number(text[0].split("/")[0].replace(/\s/g, ""));
}

async function api(path) {
  const answer = await fetch(`${server}/api/v1${path}`, { headers: { authorization: `Bearer ${token}` } });
  if (!answer.ok) throw new Error(`${path} answered ${answer.status}`);
  const body = await answer.json();
  return body.items ?? body;
}

async function until(what, holds) {
  const end = Date.now() + PATIENCE_MS;
  while (!(await holds())) {
    if (Date.now() > end) throw new Error(`in vain: ${what}`);
    await page.waitForTimeout(100);
  }
  say(what);
}

function check(holds, what) {
  if (!holds) throw new Error(`does not hold: ${what}`);
  say(what);
}

function say(what) {
  console.log(what);
}
