"""Verifies and reads requests as a receiver in another language would: one JSON list in, one JSON list out."""

import json
import sys

from cloudevents.core.bindings.http import HTTPMessage, from_http_event, from_structured_event
from standardwebhooks.webhooks import Webhook, WebhookVerificationError


def verified(request, secret):
    try:
        Webhook(secret).verify(request["body"], request["headers"])
        return True
    except WebhookVerificationError:
        return False


def events(request):
    headers, body = request["headers"], request["body"]
    if headers["content-type"] == "application/cloudevents-batch+json":
        each = [json.dumps(event).encode() for event in json.loads(body)]
        return [from_structured_event(HTTPMessage({}, event)) for event in each]
    return [from_http_event(HTTPMessage(headers, body.encode()))]


def shown(event):
    attributes = {name: str(value) for name, value in event.get_attributes().items()}
    return {"attributes": attributes, "data": event.get_data()}


answers = []
for request in json.load(sys.stdin):
    tampered = dict(request, body=request["body"].replace("total", "t0tal"))
    answers.append({
        "verified": [verified(request, secret) for secret in request["secrets"]],
        "tampered": [verified(tampered, secret) for secret in request["secrets"]],
        "events": [shown(event) for event in events(request)],
    })
json.dump(answers, sys.stdout)
