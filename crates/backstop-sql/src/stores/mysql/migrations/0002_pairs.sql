-- Pending rows by their types, so that those of a held route, however many, cost the others nothing.
SET @backstop = IF((SELECT COUNT(*) FROM information_schema.statistics WHERE table_schema = DATABASE()
  AND table_name = '{table}' AND index_name = '{idx}_pair') = 0,
  'CREATE INDEX {idx}_pair ON {table} (status, aggregate_type, event_type, available_at, created_at)', 'DO 0');
PREPARE backstop FROM @backstop;
EXECUTE backstop;
DEALLOCATE PREPARE backstop;
