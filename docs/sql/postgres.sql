CREATE TABLE IF NOT EXISTS backstop_migration (
  table_name VARCHAR(63) NOT NULL,
  version    BIGINT      NOT NULL,
  PRIMARY KEY (table_name, version)
);

-- COLLATE "C" sorts and compares ids by their bytes, as every node does, and is the fastest there is.
-- Payload and headers are json, which keeps the text as it was; a jsonb column that is there already works too.
CREATE TABLE IF NOT EXISTS outbox_event (
  event_id       VARCHAR(36)  COLLATE "C" NOT NULL PRIMARY KEY,
  event_type     VARCHAR(128) COLLATE "C" NOT NULL,
  aggregate_type VARCHAR(64)  COLLATE "C",
  aggregate_id   VARCHAR(128) COLLATE "C",
  tenant_id      VARCHAR(64)  COLLATE "C",
  payload        JSON         NOT NULL,
  headers        JSON,
  status         SMALLINT     NOT NULL,
  attempts       INTEGER      NOT NULL DEFAULT 0,
  available_at   TIMESTAMPTZ(6) NOT NULL,
  created_at     TIMESTAMPTZ(6) NOT NULL,
  done_at        TIMESTAMPTZ(6),
  last_error     TEXT,
  locked_by      VARCHAR(128) COLLATE "C",
  locked_at      TIMESTAMPTZ(6)
) WITH (fillfactor = 50);

-- Raised by each claim. Added by itself, so that a table that was there before gets it too.
ALTER TABLE outbox_event ADD COLUMN IF NOT EXISTS claim_seq BIGINT NOT NULL DEFAULT 0;

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

-- Pending rows by their types, so that those of a held route, however many, cost the others nothing. On a large table make
-- it beforehand, while programs go on writing: CREATE INDEX CONCURRENTLY with the same name and columns.
CREATE INDEX IF NOT EXISTS idx_pair ON outbox_event (aggregate_type, event_type, available_at, created_at, event_id)
  WHERE status IN (0, 2);

INSERT INTO backstop_migration (table_name, version)
SELECT 'outbox_event', 2 WHERE NOT EXISTS
  (SELECT 1 FROM backstop_migration WHERE table_name = 'outbox_event' AND version = 2);
