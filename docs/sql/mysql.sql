CREATE TABLE IF NOT EXISTS backstop_migration (
  table_name VARCHAR(63) NOT NULL,
  version    BIGINT      NOT NULL,
  PRIMARY KEY (table_name, version)
);

-- Moments are in UTC. Names are compared by their bytes, as every node compares them.
-- The payload is text: a JSON column of MySQL drops duplicate keys and rewrites numbers, and one of MariaDB
-- refuses what is nested deeper than 31 levels. A JSON column that is there already works within these limits.
CREATE TABLE IF NOT EXISTS outbox_event (
  event_id       VARCHAR(36)  NOT NULL PRIMARY KEY,
  event_type     VARCHAR(128) NOT NULL,
  aggregate_type VARCHAR(64),
  aggregate_id   VARCHAR(128),
  tenant_id      VARCHAR(64),
  payload        LONGTEXT     NOT NULL,
  headers        JSON,
  status         TINYINT      NOT NULL,
  attempts       INT          NOT NULL DEFAULT 0,
  available_at   DATETIME(6)  NOT NULL,
  created_at     DATETIME(6)  NOT NULL,
  done_at        DATETIME(6),
  last_error     TEXT,
  locked_by      VARCHAR(128),
  locked_at      DATETIME(6)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- What follows adds what is missing, also to a table that was there before. MySQL has no IF NOT EXISTS for it.

-- Raised by each claim.
SET @backstop = IF((SELECT COUNT(*) FROM information_schema.columns WHERE table_schema = DATABASE()
  AND table_name = 'outbox_event' AND column_name = 'claim_seq') = 0,
  'ALTER TABLE outbox_event ADD COLUMN claim_seq BIGINT NOT NULL DEFAULT 0', 'DO 0');
PREPARE backstop FROM @backstop;
EXECUTE backstop;
DEALLOCATE PREPARE backstop;

SET @backstop = IF((SELECT COUNT(*) FROM information_schema.statistics WHERE table_schema = DATABASE()
  AND table_name = 'outbox_event' AND index_name = 'idx_status_available') = 0,
  'CREATE INDEX idx_status_available ON outbox_event (status, available_at, created_at)', 'DO 0');
PREPARE backstop FROM @backstop;
EXECUTE backstop;
DEALLOCATE PREPARE backstop;

-- For strict order, and the list of the dead: oldest first.
SET @backstop = IF((SELECT COUNT(*) FROM information_schema.statistics WHERE table_schema = DATABASE()
  AND table_name = 'outbox_event' AND index_name = 'idx_status_created') = 0,
  'CREATE INDEX idx_status_created ON outbox_event (status, created_at)', 'DO 0');
PREPARE backstop FROM @backstop;
EXECUTE backstop;
DEALLOCATE PREPARE backstop;

-- For a purge.
SET @backstop = IF((SELECT COUNT(*) FROM information_schema.statistics WHERE table_schema = DATABASE()
  AND table_name = 'outbox_event' AND index_name = 'idx_created') = 0,
  'CREATE INDEX idx_created ON outbox_event (created_at)', 'DO 0');
PREPARE backstop FROM @backstop;
EXECUTE backstop;
DEALLOCATE PREPARE backstop;

INSERT INTO backstop_migration (table_name, version)
SELECT 'outbox_event', 1 WHERE NOT EXISTS
  (SELECT 1 FROM backstop_migration WHERE table_name = 'outbox_event' AND version = 1);

-- Pending rows by their types, so that those of a held route, however many, cost the others nothing.
SET @backstop = IF((SELECT COUNT(*) FROM information_schema.statistics WHERE table_schema = DATABASE()
  AND table_name = 'outbox_event' AND index_name = 'idx_pair') = 0,
  'CREATE INDEX idx_pair ON outbox_event (status, aggregate_type, event_type, available_at, created_at)', 'DO 0');
PREPARE backstop FROM @backstop;
EXECUTE backstop;
DEALLOCATE PREPARE backstop;

INSERT INTO backstop_migration (table_name, version)
SELECT 'outbox_event', 2 WHERE NOT EXISTS
  (SELECT 1 FROM backstop_migration WHERE table_name = 'outbox_event' AND version = 2);
