// Verifies signed messages with the reference library of Standard Webhooks for JavaScript, and Ed25519 signatures with Node's own
// crypto. Input: as for verify.py, with the public key of each message.
const { Webhook } = require(process.argv[3] + '/node_modules/standardwebhooks')
const crypto = require('crypto')
const fs = require('fs')

function fail (what) {
  console.error(what)
  process.exit(1)
}

function verifies (run) {
  try {
    return run() !== false
  } catch (error) {
    // It parses what it has verified; a text need not be JSON.
    if (error instanceof SyntaxError) return true
    return false
  }
}

function verifiesEd25519 (message, body) {
  const signature = message.headers['webhook-signature'].split(' ').find(one => one.startsWith('v1a,'))
  const raw = Buffer.from(message.public.slice('whpk_'.length), 'base64')
  const key = crypto.createPublicKey({
    key: Buffer.concat([Buffer.from('302a300506032b6570032100', 'hex'), raw]), format: 'der', type: 'spki'
  })
  const head = `${message.headers['webhook-id']}.${message.headers['webhook-timestamp']}.`
  return crypto.verify(null, Buffer.concat([Buffer.from(head), body]), key, Buffer.from(signature.slice(4), 'base64'))
}

const messages = JSON.parse(fs.readFileSync(process.argv[2], 'utf8'))
for (const message of messages) {
  const body = Buffer.from(message.body, 'base64')
  for (const secret of message.secrets) {
    const verified = verifies(() => new Webhook(secret).verify(body.toString('utf8'), message.headers))
    if (verified !== message.good) fail(message.what)
  }
  if (verifies(() => verifiesEd25519(message, body)) !== message.good) fail(message.what + ', ed25519')
}
console.log(messages.length)
