SELECT "{t}_enqueue"($1::text::uuid, $2::smallint, $3::text, $4::text, $5::text, $6::integer, $7::text::jsonb, $8::text,
  $9::bytea, $10::bigint)
