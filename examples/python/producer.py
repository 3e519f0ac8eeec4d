"""An event from Python: a plain INSERT in the application's own transaction.

    posthaste migrate --store sqlite:shop.db
    python3 examples/python/producer.py shop.db
    posthaste relay --store sqlite:shop.db --to stdout: --until-empty

With PostgreSQL it is the same statement through psycopg, with %s instead of ?.
"""
import json
import sqlite3
import sys

database = sqlite3.connect(sys.argv[1] if len(sys.argv) > 1 else "shop.db")
with database:  # one transaction: both rows or neither
    database.execute("CREATE TABLE IF NOT EXISTS orders (number INTEGER PRIMARY KEY, total INTEGER)")
    number = database.execute("INSERT INTO orders (total) VALUES (?)", (120,)).lastrowid
    database.execute(
        "INSERT INTO outbox (type, ordering_key, body) VALUES (?, ?, ?)",
        ("order.placed", str(number), json.dumps({"number": number, "total": 120})),
    )
print("order", number)
