"""A shop in Python whose events are delivered by the Backstop daemon.

    python service.py setup              creates the shop's tables
    python service.py place ITEM         saves an order and its event in one transaction
    python service.py place ITEM --fail  the same, but the transaction is rolled back
    python service.py listen             receives webhooks and ships the orders

Needs `pip install "psycopg[binary]"`, DATABASE_URL and WEBHOOK_SECRET; PORT is 8080 unless it is set.
"""

import base64
import hashlib
import hmac
import json
import os
import secrets
import sys
import time
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import psycopg

TOLERATED_SECONDS = 5 * 60


def connect():
    return psycopg.connect(os.environ["DATABASE_URL"])


def setup():
    with connect() as connection:
        connection.execute(
            "create table if not exists orders (id bigint generated always as identity primary key, item text not null)"
        )
        connection.execute(
            "create table if not exists shipments (message_id text primary key, order_id bigint not null)"
        )
    print("the shop's tables are there", flush=True)


def place(item, fail):
    """The order and its event are in one transaction: both are committed, or neither is."""
    with connect() as connection:
        (order,) = connection.execute("insert into orders (item) values (%s) returning id", (item,)).fetchone()
        connection.execute(
            "insert into outbox_event (event_id, event_type, aggregate_type, aggregate_id, payload, headers) "
            "values (%s, 'OrderPlaced', 'Order', %s, %s, %s)",
            (
                str(uuid.uuid4()),
                str(order),
                json.dumps({"order": order, "item": item}),
                # The trace of whoever places the order, so that it leads on to whoever ships it.
                json.dumps({"traceparent": new_trace()}),
            ),
        )
        if fail:
            raise SystemExit("the payment was declined: nothing is saved and nothing will be sent")
    print(f"placed order {order}", flush=True)


def new_trace():
    return f"00-{secrets.token_hex(16)}-{secrets.token_hex(8)}-01"


class Webhooks(BaseHTTPRequestHandler):
    """Answers 2xx when an event is safe here, and only then: until then the daemon sends it again."""

    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        if not is_signed(self.headers, body):
            return self.answer(401)
        event = json.loads(body)
        message, order = self.headers["webhook-id"], event["data"]["order"]
        with connect() as connection:
            # Delivery is at least once, so what was handled is remembered, in the transaction of its effect.
            added = connection.execute(
                "insert into shipments (message_id, order_id) values (%s, %s) on conflict do nothing", (message, order)
            ).rowcount
        if added:
            print(f"shipped order {order}: {event['data']['item']}, trace {self.headers['traceparent']}", flush=True)
        else:
            print(f"order {order} was shipped before", flush=True)
        self.answer(204)

    def answer(self, status):
        self.send_response(status)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *arguments):
        pass


def is_signed(headers, body):
    """Whether a request is ours and new, by https://www.standardwebhooks.com (`pip install standardwebhooks` has it too)."""
    message, moment = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
    if not moment.isdigit() or abs(time.time() - int(moment)) > TOLERATED_SECONDS:
        return False
    key = base64.b64decode(os.environ["WEBHOOK_SECRET"].removeprefix("whsec_"))
    signed = f"{message}.{moment}.".encode() + body
    expected = base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
    # One signature for each secret while secrets are changed.
    given = [text.removeprefix("v1,") for text in headers.get("webhook-signature", "").split()]
    return any(hmac.compare_digest(expected.encode(), signature.encode()) for signature in given)


def listen():
    server = ThreadingHTTPServer(("127.0.0.1", int(os.environ.get("PORT", "8080"))), Webhooks)
    print(f"listening on {server.server_port}", flush=True)
    server.serve_forever()


def main(arguments):
    match arguments:
        case ["setup"]:
            setup()
        case ["place", item]:
            place(item, fail=False)
        case ["place", item, "--fail"]:
            place(item, fail=True)
        case ["listen"]:
            listen()
        case _:
            raise SystemExit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
