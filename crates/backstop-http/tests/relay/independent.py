"""Verifies and reads requests as a receiver in another language would: one JSON list in, one JSON list out."""

import json
import sys

from cloudevents.http import from_http, from_json
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
        return [from_json(json.dumps(event)) for event in json.loads(body)]
    return [from_http(headers, body)]


def shown(event):
    return {"attributes": dict(event.get_attributes()), "data": event.get_data()}


answers = []
for request in json.load(sys.stdin):
    tampered = dict(request, body=request["body"].replace("total", "t0tal"))
    answers.append({
        "verified": [verified(request, secret) for secret in request["secrets"]],
        "tampered": [verified(tampered, secret) for secret in request["secrets"]],
        "events": [shown(event) for event in events(request)],
    })
json.dump(answers, sys.stdout)
