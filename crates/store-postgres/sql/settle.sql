UPDATE "{t}" AS o SET
  status = coalesce(s.status, o.status),
  due_at = CASE WHEN s.due_in IS NULL THEN o.due_at ELSE clock_timestamp() + s.due_in * interval '1 microsecond' END,
  attempts = o.attempts + s.counted,
  last_error = coalesce(s.error, o.last_error),
  outstanding = CASE WHEN s.outstanding IS NULL THEN o.outstanding
    ELSE ARRAY(SELECT jsonb_array_elements_text(s.outstanding::jsonb)) END
FROM unnest($1::uuid[], $2::text[], $3::bigint[], $4::integer[], $5::text[], $6::text[])
  AS s(id, status, due_in, counted, error, outstanding)
WHERE o.id = s.id AND o.{undelivered}
RETURNING o.id
