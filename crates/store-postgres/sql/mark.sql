WITH marked AS (
  UPDATE "{t}" SET status = 'published', published_at = clock_timestamp(), outstanding = NULL, last_error = NULL,
    claimed_by = NULL, claim_token = NULL, claimed_until = NULL
  WHERE id = ANY($1::uuid[]) AND seq = ANY($2::bigint[]) AND status <> 'published' RETURNING 1)
SELECT count(*), pg_current_xact_id()::text FROM marked
