WITH marked AS (DELETE FROM "{t}" WHERE id = ANY($1::uuid[]) AND seq = ANY($2::bigint[]) AND status <> 'published' RETURNING 1)
SELECT count(*), pg_current_xact_id()::text FROM marked
