// The official JavaScript client with a pod that runs: exec with input and exit codes, a terminal, and port-forward.
//
// The kubeconfig is the one that `KUBECONFIG` names; the image `clients/web:v1` must be in the store of the machine. Run by
// tests/clients/run.

import assert from 'node:assert';
import { PassThrough } from 'node:stream';

import { CoreV1Api, Exec, KubeConfig, PortForward } from '@kubernetes/client-node';

const name = 'node';
const config = new KubeConfig();
config.loadFromDefault();
const core = config.makeApiClient(CoreV1Api);

async function text(stream) {
    const pieces = [];
    for await (const piece of stream) pieces.push(piece);
    return Buffer.concat(pieces).toString();
}

async function awaitRunning() {
    for (let tries = 0; tries < 600; tries++) {
        const pod = await core.readNamespacedPod({ name, namespace: 'default' });
        if (pod.status?.phase === 'Running') return;
        await new Promise((resolve) => setTimeout(resolve, 100));
    }
    assert.fail('the pod does not run');
}

// Runs a command: what it wrote, and the status that ends it.
async function exec(command, input, tty = false) {
    const [out, err, stdin] = [new PassThrough(), new PassThrough(), new PassThrough()];
    if (input !== null) stdin.write(input);
    const status = await new Promise((resolve, reject) => {
        new Exec(config).exec('default', name, 'main', command, out, err, input === null ? null : stdin, tty, resolve).catch(reject);
    });
    out.end();
    err.end();
    stdin.end();
    return [await text(out), await text(err), status];
}

async function checkExec() {
    const script = ['busybox', 'sh', '-c', 'read line; echo got $line; echo bad >&2; exit 7'];
    const [out, err, status] = await exec(script, 'this\n');
    assert.deepStrictEqual([out, err], ['got this\n', 'bad\n']);
    assert.strictEqual(status.status, 'Failure');
    assert.strictEqual(status.details.causes[0].message, '7');
    const [hello, , good] = await exec(['busybox', 'echo', 'hello'], null);
    assert.deepStrictEqual([hello, good.status], ['hello\n', 'Success']);
    const [shown] = await exec(['busybox', 'sh', '-c', 'busybox test -t 0 && echo terminal'], null, true);
    assert.strictEqual(shown.trim(), 'terminal');
}

async function checkPortForward() {
    const [output, error, input] = [new PassThrough(), new PassThrough(), new PassThrough()];
    const socket = await new PortForward(config).portForward('default', name, [8080], output, error, input);
    input.write('GET /index.html HTTP/1.0\r\nhost: localhost\r\n\r\n');
    let answer = '';
    const deadline = setTimeout(() => assert.fail(`no answer: ${answer}`), 60_000);
    for await (const piece of output) {
        answer += piece;
        if (answer.includes('hello from a pod')) break;
    }
    clearTimeout(deadline);
    socket.close();
}

const container = { name: 'main', image: 'clients/web:v1', args: ['httpd', '-f', '-p', '8080', '-h', '/www'], stdin: true };
const body = { metadata: { name }, spec: { terminationGracePeriodSeconds: 0, containers: [container] } };
await core.createNamespacedPod({ namespace: 'default', body });
try {
    await awaitRunning();
    await checkExec();
    await checkPortForward();
} finally {
    await core.deleteNamespacedPod({ name, namespace: 'default' });
}
console.log('the JavaScript client: ok');
process.exit(0);
