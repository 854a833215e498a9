CREATE TABLE IF NOT EXISTS backstop_migration (
  table_name VARCHAR(63) NOT NULL,
  version    BIGINT      NOT NULL,
  PRIMARY KEY (table_name, version)
);

-- Moments are text in UTC, `2030-01-31 12:00:00.000000`: SQLite has no type for them, and this sorts.
-- Payload and headers are TEXT: a column declared JSON would turn the text 1.10 into the number 1.1.
CREATE TABLE IF NOT EXISTS outbox_event (
  event_id       VARCHAR(36)  NOT NULL PRIMARY KEY,
  event_type     VARCHAR(128) NOT NULL,
  aggregate_type VARCHAR(64),
  aggregate_id   VARCHAR(128),
  tenant_id      VARCHAR(64),
  payload        TEXT         NOT NULL,
  headers        TEXT,
  status         TINYINT      NOT NULL,
  attempts       INT          NOT NULL DEFAULT 0,
  available_at   TEXT         NOT NULL,
  created_at     TEXT         NOT NULL,
  done_at        TEXT,
  last_error     TEXT,
  locked_by      VARCHAR(128),
  locked_at      TEXT
);

-- Raised by each claim. Added by itself, so that a table that was there before gets it too.
ALTER TABLE outbox_event ADD COLUMN claim_seq BIGINT NOT NULL DEFAULT 0;

CREATE INDEX IF NOT EXISTS idx_status_available ON outbox_event (status, available_at, created_at);

-- What the poller asks for, and nothing else: finished rows cost it nothing.
CREATE INDEX IF NOT EXISTS idx_due ON outbox_event (available_at, created_at, event_id) WHERE status IN (0, 2);

-- The same in the order of creation, for strict order.
CREATE INDEX IF NOT EXISTS idx_due_created ON outbox_event (created_at, event_id) WHERE status IN (0, 2);

-- What a purge asks for.
CREATE INDEX IF NOT EXISTS idx_ended ON outbox_event (created_at, event_id) WHERE status IN (1, 3);

-- The list of the dead, oldest first.
CREATE INDEX IF NOT EXISTS idx_dead ON outbox_event (created_at, event_id) WHERE status = 3;

INSERT INTO backstop_migration (table_name, version)
SELECT 'outbox_event', 1 WHERE NOT EXISTS
  (SELECT 1 FROM backstop_migration WHERE table_name = 'outbox_event' AND version = 1);

-- Pending rows by their types, so that those of a held route, however many, cost the others nothing.
CREATE INDEX IF NOT EXISTS idx_pair ON outbox_event (aggregate_type, event_type, available_at, created_at, event_id)
  WHERE status IN (0, 2);

INSERT INTO backstop_migration (table_name, version)
SELECT 'outbox_event', 2 WHERE NOT EXISTS
  (SELECT 1 FROM backstop_migration WHERE table_name = 'outbox_event' AND version = 2);
