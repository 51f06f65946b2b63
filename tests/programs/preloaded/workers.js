// Workers, files, a child, a name that libuv's pool looks up, an addon if there is one: each in node.
const { Worker, isMainThread, parentPort, workerData } = require("worker_threads");
const fs = require("fs");
const crypto = require("crypto");
const path = require("path");

if (!isMainThread) {
    let sum = 0;
    for (let at = 0; at < 1e6; at++) sum += at % (workerData + 1);
    const shared = new Int32Array(new SharedArrayBuffer(4));
    Atomics.wait(shared, 0, 0, 20);
    parentPort.on("message", (said) => {
        parentPort.postMessage([said, sum]);
        parentPort.close();
    });
    return;
}

async function main(folder, addon) {
    const workers = [];
    for (let at = 0; at < 8; at++) {
        workers.push(
            new Promise((done, fail) => {
                const worker = new Worker(__filename, { workerData: at });
                worker.on("message", done).on("error", fail);
                worker.postMessage(at);
            }),
        );
    }
    console.log("workers", JSON.stringify(await Promise.all(workers)));

    const files = [...Array(100).keys()].map(async (at) => {
        const file = path.join(folder, `file-${at}`);
        await fs.promises.writeFile(file, "x".repeat(at * 1000));
        const text = await fs.promises.readFile(file, "utf8");
        await fs.promises.unlink(file);
        return text.length;
    });
    console.log("files", (await Promise.all(files)).reduce((a, b) => a + b));

    const keys = [...Array(20).keys()].map(
        (at) => new Promise((done) => crypto.pbkdf2("word", `${at}`, 2000, 16, "sha256", (_, key) => done(key[0]))),
    );
    console.log("keys", (await Promise.all(keys)).join(" "));
    console.log("name", (await require("dns").promises.lookup("localhost", { family: 4 })).address);
    console.log("child", require("child_process").execFileSync("echo", ["said"]).toString().trim());

    const terminated = new Worker("for (;;) {}", { eval: true });
    await new Promise((done) => terminated.on("online", done));
    console.log("terminated", await terminated.terminate());
    if (addon) console.log("addon", require(addon).threads(50));
}

main(process.argv[2], process.argv[3]).then(() => console.log("done"));
