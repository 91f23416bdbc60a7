// The lock of npm's redlock, as a process that tests drive: try, hold or rounds.
const fs = require("fs");
const path = require("path");
const Redis = require("ioredis");
const Redlock = require("redlock");

const [mode, host, ports, key, folder] = process.argv.slice(2);
const clients = ports.split(",").map((port) => new Redis(Number(port), host));
const redlock = (retryCount) =>
  new Redlock(clients, { retryCount, retryDelay: 2, retryJitter: 2 });
const TTL = 10000;

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

// Adds one to the counter, and leaves a mark if somebody else is doing the same.
async function section() {
  const [inside, counter] = ["inside", "counter"].map((name) => path.join(folder, name));
  const overlap = () => fs.writeFileSync(path.join(folder, "overlap"), "");
  try {
    fs.mkdirSync(inside);
  } catch {
    overlap();
  }
  const count = Number(fs.readFileSync(counter, "utf8"));
  await pause(1);
  fs.writeFileSync(counter, String(count + 1));
  try {
    fs.rmdirSync(inside);
  } catch {
    overlap();
  }
}

async function main() {
  if (mode === "try") {
    let lock;
    try {
      lock = await redlock(0).lock(key, TTL);
    } catch (error) {
      if (error.name !== "LockError") throw error;
    }
    console.log(lock ? "granted" : "held");
    if (lock) await lock.unlock();
  } else if (mode === "hold") {
    const lock = await redlock(-1).lock(key, TTL);
    console.log("granted");
    await new Promise((resolve) => process.stdin.resume().on("end", resolve));
    await lock.unlock();
    console.log("released");
  } else {
    let rounds = 0;
    while (!fs.existsSync(path.join(folder, "enough"))) {
      const lock = await redlock(-1).lock(key, TTL);
      await section();
      await lock.unlock();
      if (++rounds === 1) console.log("ready");
      // Others get their turn.
      await pause(25);
    }
    console.log(`done ${rounds}`);
  }
}

main().then(
  () => process.exit(0),
  (error) => {
    console.error(error);
    process.exit(1);
  },
);
