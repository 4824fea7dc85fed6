# Verifies signed messages with the reference library of Standard Webhooks for Python. Input: a JSON list of messages, each with
# secrets, headers, body and whether it must verify. The Rust test that calls this says what is in it.
import base64
import json
import sys

from standardwebhooks.webhooks import Webhook, WebhookVerificationError

messages = json.load(open(sys.argv[1]))
for message in messages:
    body = base64.b64decode(message["body"])
    for secret in message["secrets"]:
        try:
            Webhook(secret).verify(body, message["headers"])
            verified = True
        except WebhookVerificationError:
            verified = False
        except json.JSONDecodeError:
            # It parses what it has verified; a text need not be JSON.
            verified = True
        assert verified == message["good"], message["what"]
print(len(messages))
