-- Pending rows by their types, so that those of a held route, however many, cost the others nothing. On a large table make
-- it beforehand, while programs go on writing: CREATE INDEX CONCURRENTLY with the same name and columns.
CREATE INDEX IF NOT EXISTS {idx}_pair ON {table} (aggregate_type, event_type, available_at, created_at, event_id)
  WHERE status IN (0, 2);
