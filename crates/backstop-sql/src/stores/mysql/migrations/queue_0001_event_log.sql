-- Finished events, under the ids that they had.
CREATE TABLE IF NOT EXISTS {table} (
  id         BIGINT      NOT NULL PRIMARY KEY,
  payload    LONGTEXT    NOT NULL,
  status     VARCHAR(16) NOT NULL CHECK (status IN ('PENDING', 'PROCESSING', 'COMPLETED', 'FAILED')),
  attempts   INT         NOT NULL,
  created_at DATETIME(6) NOT NULL,
  updated_at DATETIME(6) NOT NULL
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- What follows adds what is missing, also to a table that was there before. MySQL has no IF NOT EXISTS for it.

SET @backstop = IF((SELECT COUNT(*) FROM information_schema.columns WHERE table_schema = DATABASE()
  AND table_name = '{table}' AND column_name = 'event_type') = 0,
  'ALTER TABLE {table} ADD COLUMN event_type VARCHAR(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin', 'DO 0');
PREPARE backstop FROM @backstop;
EXECUTE backstop;
DEALLOCATE PREPARE backstop;

-- Why an event failed.
SET @backstop = IF((SELECT COUNT(*) FROM information_schema.columns WHERE table_schema = DATABASE()
  AND table_name = '{table}' AND column_name = 'error') = 0,
  'ALTER TABLE {table} ADD COLUMN error TEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin', 'DO 0');
PREPARE backstop FROM @backstop;
EXECUTE backstop;
DEALLOCATE PREPARE backstop;

-- What a purge asks for.
SET @backstop = IF((SELECT COUNT(*) FROM information_schema.statistics WHERE table_schema = DATABASE()
  AND table_name = '{table}' AND index_name = '{idx}_ended') = 0,
  'CREATE INDEX {idx}_ended ON {table} (updated_at, id)', 'DO 0');
PREPARE backstop FROM @backstop;
EXECUTE backstop;
DEALLOCATE PREPARE backstop;

-- The list of failed events.
SET @backstop = IF((SELECT COUNT(*) FROM information_schema.statistics WHERE table_schema = DATABASE()
  AND table_name = '{table}' AND index_name = '{idx}_failed') = 0,
  'CREATE INDEX {idx}_failed ON {table} (status, id)', 'DO 0');
PREPARE backstop FROM @backstop;
EXECUTE backstop;
DEALLOCATE PREPARE backstop;
