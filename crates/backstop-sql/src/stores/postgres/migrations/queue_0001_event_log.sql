-- Finished events, under the ids that they had.
CREATE TABLE IF NOT EXISTS {table} (
  id         BIGINT         NOT NULL PRIMARY KEY,
  payload    TEXT           NOT NULL,
  status     VARCHAR(16)    COLLATE "C" NOT NULL
             CHECK (status IN ('PENDING', 'PROCESSING', 'COMPLETED', 'FAILED')),
  attempts   INTEGER        NOT NULL,
  created_at TIMESTAMPTZ(6) NOT NULL,
  updated_at TIMESTAMPTZ(6) NOT NULL
);

-- Added by themselves, so that a table that was there before gets them too.
ALTER TABLE {table} ADD COLUMN IF NOT EXISTS event_type VARCHAR(128) COLLATE "C";

-- Why an event failed.
ALTER TABLE {table} ADD COLUMN IF NOT EXISTS error TEXT;

-- What a purge asks for.
CREATE INDEX IF NOT EXISTS {idx}_ended ON {table} (updated_at, id);

-- The list of failed events.
CREATE INDEX IF NOT EXISTS {idx}_failed ON {table} (id) WHERE status = 'FAILED';
