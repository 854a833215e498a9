-- Finished events, under the ids that they had.
CREATE TABLE IF NOT EXISTS {table} (
  id         INTEGER     NOT NULL PRIMARY KEY,
  payload    TEXT        NOT NULL,
  status     VARCHAR(16) NOT NULL CHECK (status IN ('PENDING', 'PROCESSING', 'COMPLETED', 'FAILED')),
  attempts   INT         NOT NULL,
  created_at TEXT        NOT NULL,
  updated_at TEXT        NOT NULL
);

-- Added by themselves, so that a table that was there before gets them too.
ALTER TABLE {table} ADD COLUMN event_type VARCHAR(128);

-- Why an event failed.
ALTER TABLE {table} ADD COLUMN error TEXT;

-- What a purge asks for.
CREATE INDEX IF NOT EXISTS {idx}_ended ON {table} (updated_at, id);

-- The list of failed events.
CREATE INDEX IF NOT EXISTS {idx}_failed ON {table} (id) WHERE status = 'FAILED';
