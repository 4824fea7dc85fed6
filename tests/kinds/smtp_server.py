"""An SMTP server that behaves as it is told, for the tests of send_email.

Run with one argument, its settings as JSON. It prints one JSON object per line: where it listens, what it is asked, and
every mail it stores, read by Python's own `email`. A line that it reads is printed, too: who reads that back has read
everything before it. It ends with its input. Settings, all optional:

refuse    {address: reply}: the answer to RCPT for this address
fault     {"stage", "how", "reply", "times"}: what goes wrong at a stage: CONNECT, EHLO, STARTTLS, AUTH, MAIL, RCPT, DATA
          or DOT (after the mail was stored, unless it is refused). how: hang, drop, slow (2 s) or reply; times: how often
login     [user, password]: required, and offered only after TLS if there is TLS
tls       {"certificate", "key"}: files; with "implicit": true TLS from the start, with "offered": false STARTTLS is not
          offered, with "injected": text that is sent, unencrypted, behind the answer to STARTTLS
utf8      whether SMTPUTF8 is offered
"""

import asyncio
import base64
import email
import email.header
import email.policy
import email.utils
import json
import logging
import ssl
import sys
import warnings

from aiosmtpd.smtp import SMTP, AuthResult, LoginPassword

settings = json.loads(sys.argv[1])
fault = dict(settings.get("fault") or {})
tls = settings.get("tls")
login = settings.get("login")


def tell(event, **details):
    print(json.dumps({"event": event, **details}), flush=True)


def read(envelope):
    """What a mail program would see."""
    message = email.message_from_bytes(envelope.content, policy=email.policy.default)
    parts = [part for part in message.walk() if not part.is_multipart()]
    # Names are read by the older parser: before Python 3.13.2 the newer one keeps the space between two encoded words,
    # which RFC 2047 says is none.
    older = email.message_from_bytes(envelope.content)
    addresses = {
        name: [
            [str(email.header.make_header(email.header.decode_header(display_name))), address]
            for display_name, address in email.utils.getaddresses(older.get_all(name))
        ]
        for name in ("from", "to", "cc", "reply-to")
        if message[name] is not None
    }
    if [address.addr_spec for address in message["to"].addresses] != [address for _, address in addresses["to"]]:
        addresses["to"] = "the two parsers do not agree"
    return {
        "mail_from": envelope.mail_from,
        "rcpt_tos": envelope.rcpt_tos,
        "raw": base64.b64encode(envelope.content).decode(),
        "headers": [[name, str(value)] for name, value in message.items()],
        "subject": str(message["subject"]),
        "date": message["date"].datetime.isoformat(),
        "addresses": addresses,
        "content_type": message.get_content_type(),
        "parts": [{"type": part.get_content_type(), "text": part.get_content()} for part in parts],
        "defects": [repr(defect) for part in message.walk() for defect in part.defects]
        + [repr(defect) for value in message.values() for defect in value.defects],
    }


class Server(SMTP):
    async def goes_wrong(self, stage):
        """Whether something other than the usual happened at this stage."""
        tell("stage", stage=stage, tls=self._tls_protocol is not None)
        if fault.get("stage") != stage or fault.get("times", 1) <= 0:
            return False
        if "times" in fault:
            fault["times"] -= 1
        if fault["how"] == "slow":
            await asyncio.sleep(2)
            return False
        if fault["how"] == "hang":
            # The timer would close the connection.
            self._reset_timeout(3600)
            await asyncio.Event().wait()
        elif fault["how"] == "drop":
            self.transport.abort()
        else:
            await self.push(fault["reply"])
        return True

    async def _handle_client(self):
        tell("connected")
        if not await self.goes_wrong("CONNECT"):
            await super()._handle_client()

    async def smtp_EHLO(self, hostname):
        if not await self.goes_wrong("EHLO"):
            await super().smtp_EHLO(hostname)

    async def smtp_STARTTLS(self, arg):
        if await self.goes_wrong("STARTTLS"):
            return
        if tls.get("injected"):
            push = self.push

            async def push_more(status):
                self.push = push
                self._writer.write(status.encode() + b"\r\n" + tls["injected"].encode())
                await self._writer.drain()

            self.push = push_more
        await super().smtp_STARTTLS(arg)

    async def smtp_AUTH(self, arg):
        if not await self.goes_wrong("AUTH"):
            await super().smtp_AUTH(arg)

    async def smtp_MAIL(self, arg):
        if not await self.goes_wrong("MAIL"):
            await super().smtp_MAIL(arg)

    async def smtp_RCPT(self, arg):
        if not await self.goes_wrong("RCPT"):
            await super().smtp_RCPT(arg)

    async def smtp_DATA(self, arg):
        if not await self.goes_wrong("DATA"):
            await super().smtp_DATA(arg)

    async def smtp_NOOP(self, arg):
        tell("stage", stage="NOOP", tls=self._tls_protocol is not None)
        await super().smtp_NOOP(arg)


class Handler:
    async def handle_RCPT(self, server, session, envelope, address, options):
        reply = (settings.get("refuse") or {}).get(address)
        if reply:
            return reply
        envelope.rcpt_tos.append(address)
        return "250 2.1.5 OK"

    async def handle_DATA(self, server, session, envelope):
        if fault.get("stage") == "DOT" and fault["how"] == "reply":
            return fault["reply"]
        tell("mail", **read(envelope))
        if await server.goes_wrong("DOT"):
            # The connection is gone.
            await asyncio.Event().wait()
        return "250 2.0.0 queued as 4F2"


def authenticate(server, session, envelope, mechanism, data):
    known = isinstance(data, LoginPassword) and [data.login.decode(), data.password.decode()] == login
    tell("login", ok=known, tls=server._tls_protocol is not None)
    return AuthResult(success=known, handled=False, message=None if known else "535 5.7.8 wrong user or password")


def context():
    if not tls:
        return None
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.load_cert_chain(tls["certificate"], tls["key"])
    return made


async def main():
    made = context()
    implicit = bool(tls and tls.get("implicit"))
    offered = bool(tls) and not implicit and tls.get("offered", True)

    def connection():
        return Server(
            Handler(),
            enable_SMTPUTF8=settings.get("utf8", False),
            tls_context=made if offered else None,
            authenticator=authenticate,
            auth_required=login is not None,
            auth_require_tls=offered,
            data_size_limit=None,
        )

    loop = asyncio.get_running_loop()
    server = await loop.create_server(connection, "127.0.0.1", 0, ssl=made if implicit else None)
    tell("listening", port=server.sockets[0].getsockname()[1])
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        tell("read", line=line.strip())


# What goes wrong is answered to the client, and much goes wrong on purpose.
warnings.simplefilter("ignore")
logging.disable(logging.ERROR)
asyncio.run(main())
