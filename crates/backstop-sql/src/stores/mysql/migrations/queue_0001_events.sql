-- Waiting and running events. Moments are in UTC. The event is text: a JSON column of MySQL drops duplicate keys and rewrites
-- numbers. A JSON column that is there already works within these limits, and so does a status that is an enum with these names.
CREATE TABLE IF NOT EXISTS {table} (
  id         BIGINT      NOT NULL AUTO_INCREMENT PRIMARY KEY,
  event      LONGTEXT    NOT NULL,
  status     VARCHAR(16) NOT NULL DEFAULT 'PENDING' CHECK (status IN ('PENDING', 'PROCESSING', 'COMPLETED', 'FAILED')),
  attempts   INT         NOT NULL DEFAULT 0,
  created_at DATETIME(6) NOT NULL DEFAULT (utc_timestamp(6)),
  updated_at DATETIME(6) NOT NULL DEFAULT (utc_timestamp(6))
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- What follows adds what is missing, also to a table that was there before. MySQL has no IF NOT EXISTS for it.

-- Decides when an event is abandoned.
SET @backstop = IF((SELECT COUNT(*) FROM information_schema.columns WHERE table_schema = DATABASE()
  AND table_name = '{table}' AND column_name = 'processing_started_at') = 0,
  'ALTER TABLE {table} ADD COLUMN processing_started_at DATETIME(6)', 'DO 0');
PREPARE backstop FROM @backstop;
EXECUTE backstop;
DEALLOCATE PREPARE backstop;

-- Before this an event is not taken; empty for at once.
SET @backstop = IF((SELECT COUNT(*) FROM information_schema.columns WHERE table_schema = DATABASE()
  AND table_name = '{table}' AND column_name = 'available_at') = 0,
  'ALTER TABLE {table} ADD COLUMN available_at DATETIME(6)', 'DO 0');
PREPARE backstop FROM @backstop;
EXECUTE backstop;
DEALLOCATE PREPARE backstop;

-- The type of the event, by which a held route is passed over; empty where another program wrote the row.
SET @backstop = IF((SELECT COUNT(*) FROM information_schema.columns WHERE table_schema = DATABASE()
  AND table_name = '{table}' AND column_name = 'event_type') = 0,
  'ALTER TABLE {table} ADD COLUMN event_type VARCHAR(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin', 'DO 0');
PREPARE backstop FROM @backstop;
EXECUTE backstop;
DEALLOCATE PREPARE backstop;

-- Raised each time the row is taken.
SET @backstop = IF((SELECT COUNT(*) FROM information_schema.columns WHERE table_schema = DATABASE()
  AND table_name = '{table}' AND column_name = 'claim_seq') = 0,
  'ALTER TABLE {table} ADD COLUMN claim_seq BIGINT NOT NULL DEFAULT 0', 'DO 0');
PREPARE backstop FROM @backstop;
EXECUTE backstop;
DEALLOCATE PREPARE backstop;

SET @backstop = IF((SELECT COUNT(*) FROM information_schema.columns WHERE table_schema = DATABASE()
  AND table_name = '{table}' AND column_name = 'last_error') = 0,
  'ALTER TABLE {table} ADD COLUMN last_error TEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin', 'DO 0');
PREPARE backstop FROM @backstop;
EXECUTE backstop;
DEALLOCATE PREPARE backstop;

-- What a worker asks for: rows that can be taken at once, or whose moment has come.
SET @backstop = IF((SELECT COUNT(*) FROM information_schema.statistics WHERE table_schema = DATABASE()
  AND table_name = '{table}' AND index_name = '{idx}_ready') = 0,
  'CREATE INDEX {idx}_ready ON {table} (status, available_at, id)', 'DO 0');
PREPARE backstop FROM @backstop;
EXECUTE backstop;
DEALLOCATE PREPARE backstop;

-- The same by type, so that those of a held route, however many, cost the others nothing.
SET @backstop = IF((SELECT COUNT(*) FROM information_schema.statistics WHERE table_schema = DATABASE()
  AND table_name = '{table}' AND index_name = '{idx}_types') = 0,
  'CREATE INDEX {idx}_types ON {table} (status, available_at, event_type, id)', 'DO 0');
PREPARE backstop FROM @backstop;
EXECUTE backstop;
DEALLOCATE PREPARE backstop;

-- What is being handled, and what was abandoned.
SET @backstop = IF((SELECT COUNT(*) FROM information_schema.statistics WHERE table_schema = DATABASE()
  AND table_name = '{table}' AND index_name = '{idx}_processing') = 0,
  'CREATE INDEX {idx}_processing ON {table} (status, processing_started_at, id)', 'DO 0');
PREPARE backstop FROM @backstop;
EXECUTE backstop;
DEALLOCATE PREPARE backstop;
