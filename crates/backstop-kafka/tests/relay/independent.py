"""Reads records from standard input with the SDK of CloudEvents, and writes what it understood."""

import json
import sys

from cloudevents.core.bindings.kafka import KafkaMessage, from_kafka_event


def read(record):
    headers = {name: value.encode() for name, value in record["headers"].items()}
    event = from_kafka_event(KafkaMessage(headers, record["key"], record["value"].encode()))
    data = event.get_data()
    data = data if isinstance(data, dict) else json.loads(data)
    return {"attributes": {name: str(value) for name, value in event.get_attributes().items()}, "data": data}


json.dump([read(record) for record in json.load(sys.stdin)], sys.stdout)
