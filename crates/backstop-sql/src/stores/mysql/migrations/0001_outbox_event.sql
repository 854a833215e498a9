-- Moments are in UTC. Names are compared by their bytes, as every node compares them.
-- The payload is text: a JSON column of MySQL drops duplicate keys and rewrites numbers, and one of MariaDB
-- refuses what is nested deeper than 31 levels. A JSON column that is there already works within these limits.
CREATE TABLE IF NOT EXISTS {table} (
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
  AND table_name = '{table}' AND column_name = 'claim_seq') = 0,
  'ALTER TABLE {table} ADD COLUMN claim_seq BIGINT NOT NULL DEFAULT 0', 'DO 0');
PREPARE backstop FROM @backstop;
EXECUTE backstop;
DEALLOCATE PREPARE backstop;

SET @backstop = IF((SELECT COUNT(*) FROM information_schema.statistics WHERE table_schema = DATABASE()
  AND table_name = '{table}' AND index_name = '{idx}_status_available') = 0,
  'CREATE INDEX {idx}_status_available ON {table} (status, available_at, created_at)', 'DO 0');
PREPARE backstop FROM @backstop;
EXECUTE backstop;
DEALLOCATE PREPARE backstop;

-- For strict order, and the list of the dead: oldest first.
SET @backstop = IF((SELECT COUNT(*) FROM information_schema.statistics WHERE table_schema = DATABASE()
  AND table_name = '{table}' AND index_name = '{idx}_status_created') = 0,
  'CREATE INDEX {idx}_status_created ON {table} (status, created_at)', 'DO 0');
PREPARE backstop FROM @backstop;
EXECUTE backstop;
DEALLOCATE PREPARE backstop;

-- For a purge.
SET @backstop = IF((SELECT COUNT(*) FROM information_schema.statistics WHERE table_schema = DATABASE()
  AND table_name = '{table}' AND index_name = '{idx}_created') = 0,
  'CREATE INDEX {idx}_created ON {table} (created_at)', 'DO 0');
PREPARE backstop FROM @backstop;
EXECUTE backstop;
DEALLOCATE PREPARE backstop;
