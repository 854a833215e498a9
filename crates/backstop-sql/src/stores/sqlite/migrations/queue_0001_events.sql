-- Waiting and running events. Moments are text in UTC, `2030-01-31 12:00:00.000000`: SQLite has no type for them, and this
-- sorts. AUTOINCREMENT, because the id of a row that was deleted must not come back.
CREATE TABLE IF NOT EXISTS {table} (
  id         INTEGER     PRIMARY KEY AUTOINCREMENT,
  event      TEXT        NOT NULL,
  status     VARCHAR(16) NOT NULL DEFAULT 'PENDING' CHECK (status IN ('PENDING', 'PROCESSING', 'COMPLETED', 'FAILED')),
  attempts   INT         NOT NULL DEFAULT 0,
  created_at TEXT        NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f000', 'now')),
  updated_at TEXT        NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f000', 'now'))
);

-- Added one by one, so that a table that was there before gets them too. The first decides when an event is abandoned.
ALTER TABLE {table} ADD COLUMN processing_started_at TEXT;

-- Before this an event is not taken; empty for at once.
ALTER TABLE {table} ADD COLUMN available_at TEXT;

-- The type of the event, by which a held route is passed over; empty where another program wrote the row.
ALTER TABLE {table} ADD COLUMN event_type VARCHAR(128);

-- Raised each time the row is taken.
ALTER TABLE {table} ADD COLUMN claim_seq BIGINT NOT NULL DEFAULT 0;

ALTER TABLE {table} ADD COLUMN last_error TEXT;

-- What a worker asks for, and nothing else.
CREATE INDEX IF NOT EXISTS {idx}_ready ON {table} (id) WHERE status = 'PENDING' AND available_at IS NULL;

CREATE INDEX IF NOT EXISTS {idx}_later ON {table} (available_at, id) WHERE status = 'PENDING' AND available_at IS NOT NULL;

-- The same by type, so that those of a held route, however many, cost the others nothing.
CREATE INDEX IF NOT EXISTS {idx}_types ON {table} (event_type, id) WHERE status = 'PENDING' AND available_at IS NULL;

-- What is being handled, and what was abandoned.
CREATE INDEX IF NOT EXISTS {idx}_processing ON {table} (processing_started_at, id) WHERE status = 'PROCESSING';
