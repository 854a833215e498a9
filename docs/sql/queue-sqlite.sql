CREATE TABLE IF NOT EXISTS backstop_migration (
  table_name VARCHAR(63) NOT NULL,
  version    BIGINT      NOT NULL,
  PRIMARY KEY (table_name, version)
);

-- Waiting and running events. Moments are text in UTC, `2030-01-31 12:00:00.000000`: SQLite has no type for them, and this
-- sorts. AUTOINCREMENT, because the id of a row that was deleted must not come back.
CREATE TABLE IF NOT EXISTS events (
  id         INTEGER     PRIMARY KEY AUTOINCREMENT,
  event      TEXT        NOT NULL,
  status     VARCHAR(16) NOT NULL DEFAULT 'PENDING' CHECK (status IN ('PENDING', 'PROCESSING', 'COMPLETED', 'FAILED')),
  attempts   INT         NOT NULL DEFAULT 0,
  created_at TEXT        NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f000', 'now')),
  updated_at TEXT        NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f000', 'now'))
);

-- Added one by one, so that a table that was there before gets them too. The first decides when an event is abandoned.
ALTER TABLE events ADD COLUMN processing_started_at TEXT;

-- Before this an event is not taken; empty for at once.
ALTER TABLE events ADD COLUMN available_at TEXT;

-- The type of the event, by which a held route is passed over; empty where another program wrote the row.
ALTER TABLE events ADD COLUMN event_type VARCHAR(128);

-- Raised each time the row is taken.
ALTER TABLE events ADD COLUMN claim_seq BIGINT NOT NULL DEFAULT 0;

ALTER TABLE events ADD COLUMN last_error TEXT;

-- What a worker asks for, and nothing else.
CREATE INDEX IF NOT EXISTS idx_events_ready ON events (id) WHERE status = 'PENDING' AND available_at IS NULL;

CREATE INDEX IF NOT EXISTS idx_events_later ON events (available_at, id) WHERE status = 'PENDING' AND available_at IS NOT NULL;

-- The same by type, so that those of a held route, however many, cost the others nothing.
CREATE INDEX IF NOT EXISTS idx_events_types ON events (event_type, id) WHERE status = 'PENDING' AND available_at IS NULL;

-- What is being handled, and what was abandoned.
CREATE INDEX IF NOT EXISTS idx_events_processing ON events (processing_started_at, id) WHERE status = 'PROCESSING';

INSERT INTO backstop_migration (table_name, version)
SELECT 'events', 1 WHERE NOT EXISTS
  (SELECT 1 FROM backstop_migration WHERE table_name = 'events' AND version = 1);

CREATE TABLE IF NOT EXISTS backstop_migration (
  table_name VARCHAR(63) NOT NULL,
  version    BIGINT      NOT NULL,
  PRIMARY KEY (table_name, version)
);

-- Finished events, under the ids that they had.
CREATE TABLE IF NOT EXISTS event_log (
  id         INTEGER     NOT NULL PRIMARY KEY,
  payload    TEXT        NOT NULL,
  status     VARCHAR(16) NOT NULL CHECK (status IN ('PENDING', 'PROCESSING', 'COMPLETED', 'FAILED')),
  attempts   INT         NOT NULL,
  created_at TEXT        NOT NULL,
  updated_at TEXT        NOT NULL
);

-- Added by themselves, so that a table that was there before gets them too.
ALTER TABLE event_log ADD COLUMN event_type VARCHAR(128);

-- Why an event failed.
ALTER TABLE event_log ADD COLUMN error TEXT;

-- What a purge asks for.
CREATE INDEX IF NOT EXISTS idx_event_log_ended ON event_log (updated_at, id);

-- The list of failed events.
CREATE INDEX IF NOT EXISTS idx_event_log_failed ON event_log (id) WHERE status = 'FAILED';

INSERT INTO backstop_migration (table_name, version)
SELECT 'event_log', 1 WHERE NOT EXISTS
  (SELECT 1 FROM backstop_migration WHERE table_name = 'event_log' AND version = 1);
